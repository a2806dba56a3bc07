//! The threads that read frames from cell supervisors and compilers, and the handling of each frame.

use super::{CellLink, TuneRequest, write};
use crate::engine::evaluate::report;
use crate::execution::{Output, Stream};
use ferrotune_link::{Answer, CellEnding, KernelFrame, SupervisorOrder, wire};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use tokio::sync::oneshot;

/// The sender to the thread that passes on the answers to questions about comms, in the order of the questions. The thread starts at
/// the first question of a connection and ends with the connection. The server answers at once, so no question waits long.
#[derive(Default)]
struct CommAnswers(Option<mpsc::Sender<(u64, oneshot::Receiver<Answer>)>>);

impl CellLink {
    pub(super) fn connected(self, stream: UnixStream) {
        let spawned = thread::Builder::new().name("link-reader".into()).spawn(move || self.follow(stream));
        if let Err(error) = spawned {
            tracing::error!("outputs of cells cannot be read: {error}");
        }
    }

    fn follow(self, mut reader: UnixStream) {
        let number = match self.greet(&mut reader) {
            Ok(Some(number)) => number,
            Ok(None) => {
                while let Ok(Some(_)) = wire::read::<KernelFrame>(&mut reader) {}
                return;
            }
            Err(error) => return tracing::warn!("a cell supervisor or compiler could not connect: {error}"),
        };
        let mut comm_answers = CommAnswers::default();
        let is_compiler = self.lock().compilers.iter().any(|(compiler, _)| *compiler == number);
        loop {
            match wire::read::<KernelFrame>(&mut reader) {
                // The progress of the engine's own compilations is part of no cell.
                Ok(Some(KernelFrame::Display { .. })) if is_compiler && !self.lock().compiles_for_user => {}
                Ok(Some(frame)) => self.take(frame, &mut comm_answers),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!("the cell supervisor's connection broke: {error}");
                    break;
                }
            }
        }
        let mut state = self.lock();
        state.compilers.retain(|(compiler, _)| *compiler != number);
        if state.connection.as_ref().is_some_and(|(current, _)| *current == number) {
            state.connection = None;
            // Nobody answers the requests to this supervisor any more.
            state.replies.clear();
        }
    }

    /// Reads the first frame, which identifies the peer as a supervisor or a compiler, and returns the number of the connection; none
    /// for a peer that serves no cell.
    fn greet(&self, reader: &mut UnixStream) -> io::Result<Option<u64>> {
        let peer = Arc::new(Mutex::new(reader.try_clone()?));
        let first = wire::read::<KernelFrame>(reader)?;
        let mut state = self.lock();
        state.connections += 1;
        let number = state.connections;
        match first {
            Some(KernelFrame::Aside) => return Ok(None),
            Some(KernelFrame::Supervisor) => state.connection = Some((number, peer)),
            Some(KernelFrame::Compiler) => {
                state.compilers.push((number, Arc::clone(&peer)));
                // evcxr compiles a cell a second time if the first compilation fails.
                let is_too_late = state.compiles_for_user && state.outcome.interrupted;
                drop(state);
                if is_too_late {
                    write(&peer, &SupervisorOrder::Interrupt);
                }
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not say what it is")),
        }
        Ok(Some(number))
    }

    fn take(&self, frame: KernelFrame, comm_answers: &mut CommAnswers) {
        match frame {
            KernelFrame::Supervisor | KernelFrame::Compiler | KernelFrame::Aside => {
                tracing::warn!("a connection says a second time what it is")
            }
            KernelFrame::Stream { stream, text } => self.print(stream, text),
            KernelFrame::Display { data, metadata, display_id, update } => {
                self.emit(Output::Display { data, metadata, display_id, update });
            }
            KernelFrame::Result { data, metadata } => self.emit(Output::Result { data, metadata }),
            KernelFrame::Surroundings { surroundings } => self.lock().surroundings = surroundings,
            KernelFrame::Clear { wait } => self.emit(Output::Clear { wait }),
            KernelFrame::Asked { number, question } => self.asked(number, *question, comm_answers),
            KernelFrame::Input { .. } | KernelFrame::Comm { .. } | KernelFrame::Tune { .. } => {
                tracing::warn!("a question has no number; nobody answers it");
            }
            KernelFrame::Panic { message, location } => self.lock().outcome.panic = Some((message, location)),
            KernelFrame::Panicked => {
                let outcome = &mut self.lock().outcome;
                let elsewhere = || ("a panic on another thread ended the cell".to_owned(), None);
                outcome.panicked = Some(outcome.panic.take().unwrap_or_else(elsewhere));
            }
            // The first error is the cause. A `?` may have passed it on.
            KernelFrame::Failed { message, location } => {
                self.lock().outcome.failed.get_or_insert((message, location));
            }
            KernelFrame::Backtrace { locations } => self.lock().outcome.backtrace = locations,
            KernelFrame::Located { before, location, after } => {
                let place =
                    self.place(&location).unwrap_or_else(|| "a line that the notebook has generated".to_owned());
                self.print(Stream::Stderr, format!("{before}{place}{after}"));
            }
            KernelFrame::Restored { ending, threads, running: true } => {
                self.lock().outcome.restored = Some((ending, threads));
            }
            KernelFrame::Restored { ending, threads, running: false } => self.tell_restored(&ending, &threads),
            KernelFrame::Unguarded { reason } => self.warn_unguarded(&reason),
            KernelFrame::Profile { trace } => self.lock().outcome.profile = Some(trace),
            KernelFrame::DeviceProfile { failure } => {
                self.lock().outcome.device_profile = Some(failure.map_or(Ok(()), Err))
            }
            KernelFrame::Sampled { samples } => self.lock().outcome.samples.push(samples),
            KernelFrame::Unsampled { reason } => self.lock().outcome.unsampled = Some(reason),
            KernelFrame::Warnings { diagnostics } => self.lock().outcome.warnings = diagnostics,
            KernelFrame::Cancelled => self.lock().outcome.cancelled = true,
            KernelFrame::Changed { names } => self.lock().outcome.changed = names,
            KernelFrame::Reply { number, reply } => {
                let waiting = self.lock().replies.remove(&number);
                if waiting.is_none_or(|waiting| waiting.send(reply).is_err()) {
                    tracing::debug!("the request of this reply was given up");
                }
            }
            KernelFrame::Died { ending } => {
                let mut state = self.lock();
                state.outcome.died = Some(ending);
                state.died_was_told = false;
            }
        }
    }

    /// Tells the user that a thread of an earlier cell ended the process while no cell ran, and that a snapshot replaced the process.
    fn tell_restored(&self, ending: &CellEnding, threads: &[String]) {
        let text = format!("{}\n", report::taken_over_between_cells(ending, threads));
        self.emit(Output::Stream(Stream::Stderr, text));
    }

    /// Warns the user once that a crash would lose the variables.
    fn warn_unguarded(&self, reason: &str) {
        if !std::mem::replace(&mut self.lock().unguarded_was_told, true) {
            let text = format!("no snapshot was made, a crash in the next cell would cost the variables: {reason}\n");
            self.emit(Output::Stream(Stream::Stderr, text));
        }
    }

    fn asked(&self, number: u64, question: KernelFrame, comm_answers: &mut CommAnswers) {
        match question {
            KernelFrame::Input { prompt, password } => self.aside(number, move |link| link.ask(prompt, password)),
            KernelFrame::Comm { action } => {
                let (reply, answer) = oneshot::channel();
                self.emit(Output::Comm { action, reply });
                comm_answers.pass_on(self, number, answer);
            }
            KernelFrame::Tune { pid, library, symbol, shared_fd, device, seed, location } => {
                let items = self.lock().places.items(&location);
                let request = TuneRequest { pid, library, symbol, shared_fd, device, seed, items };
                self.aside(number, move |link| link.tune(request));
            }
            frame => {
                let reason = format!("the kernel has no answer to this frame: {frame:?}");
                self.answer(number, Answer::Refused { reason });
            }
        }
    }

    /// Finds an answer on a separate thread, since the answer may take long and the reading thread must continue to read.
    fn aside(&self, number: u64, find: impl FnOnce(&Self) -> Answer + Send + 'static) {
        let link = self.clone();
        let work = move || link.answer(number, find(&link));
        if let Err(error) = thread::Builder::new().name("link-answer".into()).spawn(work) {
            let reason = format!("the kernel cannot start a thread: {error}");
            self.answer(number, Answer::Refused { reason });
        }
    }

    fn answer(&self, number: u64, answer: Answer) {
        if !self.order(&SupervisorOrder::Answer { number, answer }) {
            // The cell waits for an answer, so it gets a refusal. If the link is broken, the refusal is lost too.
            let reason = "the kernel's answer is larger than 256 MiB".to_owned();
            self.order(&SupervisorOrder::Answer { number, answer: Answer::Refused { reason } });
        }
    }

    fn ask(&self, prompt: String, password: bool) -> Answer {
        let text = if self.lock().allow_stdin {
            let (reply, line) = oneshot::channel();
            self.emit(Output::Input { prompt, password, reply });
            line.blocking_recv().ok()
        } else {
            None
        };
        Answer::Line { text }
    }

    fn tune(&self, request: TuneRequest) -> Answer {
        let tuner = self.lock().tuner.take();
        match tuner {
            Some(tuner) => tuner(request),
            None => Answer::Refused { reason: "a search begins with %%tune".to_owned() },
        }
    }
}

impl CommAnswers {
    /// Passes an answer on once the server has given it. The reading thread must not wait, since the supervisor may be writing.
    fn pass_on(&mut self, link: &CellLink, number: u64, answer: oneshot::Receiver<Answer>) {
        if self.0.is_none() {
            self.0 = Self::start(link.clone())
                .inspect_err(|error| tracing::error!("answers about comms have no thread: {error}"))
                .ok();
        }
        let is_passed = self.0.as_ref().is_some_and(|thread| thread.send((number, answer)).is_ok());
        if !is_passed {
            link.answer(number, Answer::Refused { reason: "the kernel cannot start a thread".to_owned() });
        }
    }

    fn start(link: CellLink) -> io::Result<mpsc::Sender<(u64, oneshot::Receiver<Answer>)>> {
        let (sender, answers) = mpsc::channel();
        thread::Builder::new().name("link-comms".into()).spawn(move || {
            for (number, answer) in answers {
                link.answer(number, of_comm(answer));
            }
        })?;
        Ok(sender)
    }
}

fn of_comm(answer: oneshot::Receiver<Answer>) -> Answer {
    let nobody = |_| Answer::Refused { reason: "this cell's outputs are not kept, and neither are comms".to_owned() };
    answer.blocking_recv().unwrap_or_else(nobody)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_link::CommAction;

    #[test]
    fn answers_about_comms_come_in_the_order_of_the_questions_from_one_thread() {
        let (own, mut other) = UnixStream::pair().unwrap();
        let link = CellLink::default();
        let (outputs, mut given) = tokio::sync::mpsc::unbounded_channel();
        link.lock().connection = Some((1, Arc::new(Mutex::new(own))));
        link.lock().outputs = Some(outputs);
        let mut comm_answers = CommAnswers::default();
        let mut replies = Vec::new();
        for number in 0..100 {
            let question = Box::new(KernelFrame::Comm { action: CommAction::Take { comm: "a".to_owned() } });
            link.take(KernelFrame::Asked { number, question }, &mut comm_answers);
            let Ok(Output::Comm { reply, .. }) = given.try_recv() else { panic!("the server is not asked") };
            replies.push(reply);
        }
        replies.into_iter().rev().for_each(|reply| reply.send(Answer::Done).unwrap());
        drop((comm_answers, link));
        for number in 0..100 {
            let answer = SupervisorOrder::Answer { number, answer: Answer::Done };
            assert_eq!(wire::read(&mut other).unwrap(), Some(answer));
        }
        assert_eq!(wire::read::<SupervisorOrder>(&mut other).unwrap(), None, "the thread has ended");
    }

    #[test]
    fn answer_that_does_not_fit_in_a_frame_is_refused_so_that_the_cell_goes_on() {
        let (own, mut other) = UnixStream::pair().unwrap();
        let link = CellLink::default();
        link.lock().connection = Some((1, Arc::new(Mutex::new(own))));
        link.answer(7, Answer::Line { text: Some("x".repeat(wire::MAX_FRAME_BYTES as usize)) });
        let reason = "the kernel's answer is larger than 256 MiB".to_owned();
        let refused = SupervisorOrder::Answer { number: 7, answer: Answer::Refused { reason } };
        drop(link);
        assert_eq!(wire::read(&mut other).unwrap(), Some(refused));
    }
}
