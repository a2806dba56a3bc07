//! A search in the program's own process: function calls answer the requests of its trials. No processes.

use crate::callback::{began, ended, tell};
use crate::{Callback, Control, Ending, Finish, ObjectiveValue, Parameter, Result, StudyError, Trial, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::wire::{Reply, Request};
use ferrotune_trial::SupervisorClient;
use ferrotune_tuner::in_process::{Begun, InProcessSearch, SearchError, Writing};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

/// An open study, which its running trials share.
#[derive(Debug)]
pub(crate) struct OpenStudy(Rc<RefCell<Shared>>);

/// The state that a study shares with its running trials.
#[derive(Debug)]
struct Shared {
    search: InProcessSearch,
    callbacks: Vec<Box<dyn Callback>>,
    /// The number of executions that each running trial had when it began, by trial number.
    executions: BTreeMap<u64, usize>,
    /// The error for which a trial got no answer; the trial's objective learns only that there was none.
    failure: Option<SearchError>,
}

/// The client with which a trial sends its requests to the study.
#[derive(Debug)]
struct TrialClient {
    study: Rc<RefCell<Shared>>,
    number: u64,
}

impl SupervisorClient for TrialClient {
    fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        let mut study = self.study.borrow_mut();
        let reply = study.search.answer(self.number, request);
        if let (Request::Report { step, metrics }, Ok(Reply::Verdict { .. })) = (request, &reply) {
            study.announce(|callback| callback.on_report(self.number, *step, metrics));
        }
        reply.map_err(|error| {
            let text = error.to_string();
            study.failure = Some(error);
            io::Error::other(text)
        })
    }
}

impl Shared {
    /// Reports an event to the callbacks, and stops the search if one of them wants it.
    fn announce(&mut self, event: impl Fn(&mut dyn Callback) -> Control) {
        let control = tell(&mut self.callbacks, event);
        self.heed(control);
    }

    fn heed(&mut self, control: Control) {
        if control == Control::Stop {
            self.search.stop();
        }
    }

    /// Begins the next trial, or returns why there is none.
    fn begin(&mut self, writing: Writing) -> Result<Next, StudyError> {
        loop {
            match self.search.begin(writing)? {
                Begun::Trial(number) => {
                    let execution = self.search.trials()[number as usize].executions.len();
                    self.executions.insert(number, execution);
                    let control = began(&mut self.callbacks, number, execution as u64);
                    self.heed(control);
                    return Ok(Next::Trial(number));
                }
                Begun::Ended(_) if self.callbacks.is_empty() => {}
                Begun::Ended(number) => {
                    self.search.sync()?;
                    let record = self.search.trials()[number as usize].clone();
                    let control = ended(&mut self.callbacks, &record);
                    self.heed(control);
                }
                Begun::Waiting(trials) => return Err(StudyError::Waiting { trials }),
                Begun::Over(finish) => return Ok(Next::Over(finish)),
            }
        }
    }

    /// Finishes a trial that has given its result.
    fn conclude(&mut self, number: u64) -> Result<TrialRecord, StudyError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure.into());
        }
        let before = self.executions.remove(&number).unwrap_or_default();
        let record = self.search.conclude(number)?.clone();
        if self.callbacks.is_empty() {
            return Ok(record);
        }
        self.search.sync()?;
        if record.ending.is_some() {
            let control = ended(&mut self.callbacks, &record);
            self.heed(control);
        } else if let Some(values) = record.executions.get(before) {
            self.announce(|callback| callback.on_execution_end(number, before as u64, values));
        }
        Ok(record)
    }
}

/// The next step of a study.
enum Next {
    /// The trial with this number has begun.
    Trial(u64),
    Over(Finish),
}

impl OpenStudy {
    pub(crate) fn open(spec: &StudySpec, callbacks: Vec<Box<dyn Callback>>) -> Result<OpenStudy, StudyError> {
        let search = InProcessSearch::open(spec)?;
        let (folder, earlier) = (search.folder().to_path_buf(), search.trials().len() as u64);
        let mut study = Shared { search, callbacks, executions: BTreeMap::new(), failure: None };
        study.announce(|callback| callback.on_search_begin(&folder, earlier));
        Ok(OpenStudy(Rc::new(RefCell::new(study))))
    }

    /// Runs one trial after the other; each trial is one write to the journal.
    pub(crate) fn optimize<R: ObjectiveValue>(
        &mut self,
        mut objective: impl FnMut(&Trial) -> Result<R>,
    ) -> Result<Finish, StudyError> {
        self.0.borrow_mut().search.go_on();
        let ended = self.run(&mut objective);
        let mut study = self.0.borrow_mut();
        study.search.sync()?;
        let finish = ended?;
        study.callbacks.iter_mut().for_each(|callback| callback.on_search_end(&finish));
        Ok(finish)
    }

    fn run<R: ObjectiveValue>(
        &mut self,
        objective: &mut impl FnMut(&Trial) -> Result<R>,
    ) -> Result<Finish, StudyError> {
        loop {
            let next = self.0.borrow_mut().begin(Writing::EachTrial)?;
            let number = match next {
                Next::Trial(number) => number,
                Next::Over(finish) => return Ok(finish),
            };
            let ran = ferrotune_trial::run_in_process(self.client(number), &mut *objective);
            // If the study could not record the result, that error is the better reason.
            self.0.borrow_mut().conclude(number)?;
            ran?;
        }
    }

    pub(crate) fn ask(&mut self) -> Result<Trial, StudyError> {
        let next = self.0.borrow_mut().begin(Writing::EachFact)?;
        match next {
            Next::Trial(number) => Ok(Trial::at(self.client(number))?),
            Next::Over(finish) => Err(StudyError::Over { finish }),
        }
    }

    pub(crate) fn tell(&mut self, trial: &Trial, values: Vec<Option<f64>>) -> Result<TrialRecord, StudyError> {
        self.end(trial, &Request::Finish { values })
    }

    pub(crate) fn tell_failed(&mut self, trial: &Trial, reason: &str) -> Result<TrialRecord, StudyError> {
        self.end(trial, &Request::Fail { ending: Ending::Failed { reason: reason.to_owned() } })
    }

    pub(crate) fn add(
        &mut self,
        parameters: &BTreeMap<String, Parameter>,
        values: Vec<f64>,
    ) -> Result<TrialRecord, StudyError> {
        Ok(self.0.borrow_mut().search.add(parameters, values)?.clone())
    }

    pub(crate) fn trials(&self) -> Vec<TrialRecord> {
        self.0.borrow().search.trials().to_vec()
    }

    fn end(&mut self, trial: &Trial, request: &Request) -> Result<TrialRecord, StudyError> {
        let mut study = self.0.borrow_mut();
        match study.search.answer(trial.number(), request)? {
            Reply::Refused { reason } => Err(StudyError::Refused { reason }),
            _ => study.conclude(trial.number()),
        }
    }

    fn client(&self, number: u64) -> Box<TrialClient> {
        Box::new(TrialClient { study: Rc::clone(&self.0), number })
    }
}
