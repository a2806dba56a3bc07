//! A search in the program's own process: what its trials ask is answered by a call. No processes.

use crate::callback::{began, ended, tell};
use crate::{Callback, Control, Ending, Finish, ObjectiveValue, Result, StudyError, Trial, TrialRecord};
use ferrotune_trial::SupervisorClient;
use ferrotune_tuner::spec::StudySpec;
use ferrotune_tuner::supervisor::{Local, SupervisorError, Writing};
use ferrotune_tuner::wire::{Reply, Request};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

/// An open study.
#[derive(Debug)]
pub(crate) struct Here(Rc<RefCell<Search>>);

/// What a study and the trials of it that run have in common.
#[derive(Debug)]
struct Search {
    local: Local,
    callbacks: Vec<Box<dyn Callback>>,
    /// Executions that trials which run had when they began, by number.
    executions: BTreeMap<u64, usize>,
    /// Why a trial was not answered: its objective sees no more than that it was not.
    failure: Option<SupervisorError>,
}

/// Where one trial asks.
#[derive(Debug)]
struct Own {
    search: Rc<RefCell<Search>>,
    number: u64,
}

impl SupervisorClient for Own {
    fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        let mut search = self.search.borrow_mut();
        let reply = search.local.answer(self.number, request.clone());
        if let (Request::Report { step, metrics }, Ok(Reply::Verdict { .. })) = (request, &reply) {
            search.announce(|callback| callback.on_report(self.number, *step, metrics));
        }
        reply.map_err(|error| {
            let text = error.to_string();
            search.failure = Some(error);
            io::Error::other(text)
        })
    }
}

impl Search {
    /// Tells the callbacks, and stops where one of them wants to.
    fn announce(&mut self, event: impl Fn(&mut dyn Callback) -> Control) {
        let control = tell(&mut self.callbacks, event);
        self.heed(control);
    }

    fn heed(&mut self, control: Control) {
        if control == Control::Stop {
            self.local.stop();
        }
    }

    /// Begins the next trial, or says why there is none.
    fn begin(&mut self, writing: Writing) -> Result<Result<u64, Finish>, SupervisorError> {
        let begun = self.local.begin(writing)?;
        if let Ok(number) = &begun {
            let execution = self.local.trials()[*number as usize].executions.len() as u64;
            self.executions.insert(*number, execution as usize);
            let control = began(&mut self.callbacks, *number, execution);
            self.heed(control);
        }
        Ok(begun)
    }

    /// Takes leave of a trial that has given its last word.
    fn conclude(&mut self, number: u64) -> Result<TrialRecord, StudyError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure.into());
        }
        let before = self.executions.remove(&number).unwrap_or_default();
        let record = self.local.conclude(number)?.clone();
        if self.callbacks.is_empty() {
            return Ok(record);
        }
        self.local.sync()?;
        if record.ending.is_some() {
            let control = ended(&mut self.callbacks, &record);
            self.heed(control);
        } else if let Some(values) = record.executions.get(before) {
            self.announce(|callback| callback.on_execution_end(number, before as u64, values));
        }
        Ok(record)
    }
}

impl Here {
    pub(crate) fn open(spec: &StudySpec, callbacks: Vec<Box<dyn Callback>>) -> Result<Here, StudyError> {
        let local = Local::open(spec)?;
        let mut search = Search { local, callbacks, executions: BTreeMap::new(), failure: None };
        let (folder, earlier) = (search.local.folder().to_path_buf(), search.local.trials().len() as u64);
        search.announce(|callback| callback.on_search_begin(&folder, earlier));
        Ok(Here(Rc::new(RefCell::new(search))))
    }

    /// Runs one trial after the other, each in one write to the journal.
    pub(crate) fn optimize<R: ObjectiveValue>(
        &mut self,
        mut objective: impl FnMut(&Trial) -> Result<R>,
    ) -> Result<Finish, StudyError> {
        self.0.borrow_mut().local.go_on();
        let ended = self.run(&mut objective);
        let mut search = self.0.borrow_mut();
        search.local.sync()?;
        let finish = ended?;
        search.callbacks.iter_mut().for_each(|callback| callback.on_search_end(&finish));
        Ok(finish)
    }

    fn run<R: ObjectiveValue>(
        &mut self,
        objective: &mut impl FnMut(&Trial) -> Result<R>,
    ) -> Result<Finish, StudyError> {
        loop {
            let begun = self.0.borrow_mut().begin(Writing::EachTrial)?;
            let number = match begun {
                Ok(number) => number,
                Err(finish) => return Ok(finish),
            };
            let told = ferrotune_trial::run_in_process(self.client(number), &mut *objective);
            // Why the study could not be told is the better reason.
            self.0.borrow_mut().conclude(number)?;
            told?;
        }
    }

    pub(crate) fn ask(&mut self) -> Result<Trial, StudyError> {
        let begun = self.0.borrow_mut().begin(Writing::EachFact)?;
        let number = begun.map_err(|_| StudyError::Over)?;
        Ok(Trial::at(self.client(number))?)
    }

    pub(crate) fn tell(&mut self, trial: &Trial, values: Vec<Option<f64>>) -> Result<TrialRecord, StudyError> {
        self.end(trial, Request::Finish { values })
    }

    pub(crate) fn tell_failed(&mut self, trial: &Trial, reason: &str) -> Result<TrialRecord, StudyError> {
        self.end(trial, Request::Fail { ending: Ending::Failed { reason: reason.to_owned() } })
    }

    pub(crate) fn trials(&self) -> Vec<TrialRecord> {
        self.0.borrow().local.trials().to_vec()
    }

    fn end(&mut self, trial: &Trial, request: Request) -> Result<TrialRecord, StudyError> {
        let mut search = self.0.borrow_mut();
        match search.local.answer(trial.number(), request)? {
            Reply::Refused { reason } => Err(StudyError::Told { reason }),
            _ => search.conclude(trial.number()),
        }
    }

    fn client(&self, number: u64) -> Box<Own> {
        Box::new(Own { search: Rc::clone(&self.0), number })
    }
}
