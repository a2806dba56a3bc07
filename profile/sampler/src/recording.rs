//! The sampler's thread, which gives each thread a timer, and finds the callers in the copied stacks.

use crate::error::SamplerError;
use crate::modules::Modules;
use crate::samples::{Place, Samples, Tree};
use crate::signal::{self, MOST_THREADS, Registers, STACK_BYTES, Timer};
use framehop::{CacheNative, UnwindRegsNative, Unwinder};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The time between two reads of the copied stacks, which is shorter than the time between two signals of a thread.
const LOOK: Duration = Duration::from_millis(5);

/// The number of reads between two searches for new threads.
const LOOKS_BETWEEN_SEARCHES: u32 = 4;

/// The greatest number of frames of a stack.
const MOST_FRAMES: usize = 1024;

/// A sampler of all threads of this process, which runs until it is finished. A process has at most one at a time.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Result<Samples, SamplerError>>,
}

impl Sampler {
    /// Starts a sampler with this period, at least 10 ms: it samples each thread whenever that thread has used so much more CPU time.
    /// A thread that waits is not sampled.
    ///
    /// # Errors
    /// The system has no timers of a thread's CPU time, or the process uses their signal itself.
    ///
    /// # Example
    /// ```
    /// # use std::time::{Duration, Instant};
    /// let sampler = ferrotune_sampler::Sampler::start(Duration::from_millis(10))?;
    /// let begin = Instant::now();
    /// while begin.elapsed() < Duration::from_millis(100) {}
    /// assert!(sampler.finish()?.count > 0);
    /// # Ok::<(), ferrotune_sampler::SamplerError>(())
    /// ```
    pub fn start(period: Duration) -> Result<Self, SamplerError> {
        signal::prepare()?;
        let (stop, stopped) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let run = move || {
            signal::take_no_signals();
            let mut recording = Recording::begin(period.max(2 * LOOK));
            let result = recording.look_for_threads();
            let can_go_on = result.is_ok();
            // The receiver is gone only if the caller is gone.
            let is_awaited = ready.send(result).is_ok();
            if can_go_on && is_awaited {
                recording.run(&stopped)?;
            }
            recording.finish()
        };
        let thread = thread::Builder::new().name("ferrotune-sampler".to_owned()).spawn(run);
        let thread = thread.map_err(SamplerError::system("a thread"))?;
        is_ready.recv().map_err(|_| SamplerError::Panicked)??;
        Ok(Self { stop, thread })
    }

    /// Ends the sampling, and deletes the timers of all threads.
    ///
    /// # Errors
    /// A defect of the sampler.
    pub fn finish(self) -> Result<Samples, SamplerError> {
        drop(self.stop);
        self.thread.join().map_err(|_| SamplerError::Panicked)?
    }
}

/// A thread that is sampled.
struct Sampled {
    timer: Timer,
    slot: usize,
    name: String,
    /// The CPU time that earlier samples have counted.
    counted: Duration,
}

struct Recording {
    begin: Instant,
    period: Duration,
    own: i32,
    threads: HashMap<i32, Sampled>,
    free: Vec<usize>,
    missed: HashSet<i32>,
    modules: Modules,
    cache: CacheNative<framehop::MayAllocateDuringUnwind>,
    stack: Box<[u8; STACK_BYTES]>,
    tree: Tree,
    count: u64,
}

impl Recording {
    fn begin(period: Duration) -> Self {
        let mut modules = Modules::default();
        modules.update();
        Self {
            begin: Instant::now(),
            period,
            own: rustix::thread::gettid().as_raw_nonzero().get(),
            threads: HashMap::new(),
            free: (0..MOST_THREADS).rev().collect(),
            missed: HashSet::new(),
            modules,
            cache: CacheNative::new(),
            stack: Box::new([0; STACK_BYTES]),
            tree: Tree::default(),
            count: 0,
        }
    }

    fn run(&mut self, stopped: &Receiver<()>) -> Result<(), SamplerError> {
        let mut looks = 0;
        while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            self.take_samples();
            looks += 1;
            if looks % LOOKS_BETWEEN_SEARCHES == 0 {
                self.look_for_threads()?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Samples, SamplerError> {
        self.take_samples();
        self.threads.clear();
        signal::release()?;
        Ok(Samples {
            wall_us: microseconds(self.begin.elapsed()),
            count: self.count,
            modules: self.modules.paths,
            nodes: self.tree.nodes,
            threads_missed: self.missed.len() as u64,
        })
    }

    /// Gives new threads their timers, and deletes the timers of ended threads.
    fn look_for_threads(&mut self) -> Result<(), SamplerError> {
        let tasks = fs::read_dir("/proc/self/task").map_err(SamplerError::system("the list of threads"))?;
        let names = tasks.flatten().map(|task| task.file_name());
        let present: HashSet<i32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
        let ended: Vec<i32> = self.threads.keys().copied().filter(|thread| !present.contains(thread)).collect();
        for thread in ended {
            self.free.extend(self.threads.remove(&thread).map(|sampled| sampled.slot));
        }
        for thread in present {
            if thread != self.own && !self.threads.contains_key(&thread) && !self.missed.contains(&thread) {
                self.add_thread(thread)?;
            }
        }
        Ok(())
    }

    fn add_thread(&mut self, thread: i32) -> Result<(), SamplerError> {
        // The thread may have ended in the meantime.
        let Some(counted) = signal::cpu_time(thread) else { return Ok(()) };
        let Some(slot) = self.free.pop() else {
            self.missed.insert(thread);
            return Ok(());
        };
        match Timer::start(thread, slot, self.period) {
            Ok(timer) => {
                let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
                let name = name.trim().to_owned();
                self.threads.insert(thread, Sampled { timer, slot, name, counted });
                Ok(())
            }
            Err(_) if signal::cpu_time(thread).is_none() => {
                self.free.push(slot);
                Ok(())
            }
            Err(error) => Err(SamplerError::system("a timer of a thread's CPU time")(error)),
        }
    }

    fn take_samples(&mut self) {
        for (thread, sampled) in &mut self.threads {
            let Some((registers, bytes)) = signal::take(sampled.slot, &mut self.stack) else { continue };
            let _timer_lives = &sampled.timer;
            let now = signal::cpu_time(*thread).unwrap_or(sampled.counted);
            let used = now.saturating_sub(sampled.counted);
            sampled.counted = now;
            self.count += 1;
            let stack = &self.stack[..bytes];
            let (mut frames, mut is_whole) = unwind(&self.modules, &mut self.cache, registers, stack);
            if frames.iter().any(|address| self.modules.find(*address).is_none()) {
                self.modules.update();
                (frames, is_whole) = unwind(&self.modules, &mut self.cache, registers, stack);
            }
            let places = frames.iter().rev().map(|address| match self.modules.find(*address) {
                Some((module, address)) => Place::Code { module, address },
                None => Place::Unknown,
            });
            let outermost = (!is_whole).then_some(Place::Unknown);
            let thread = Place::Thread { name: sampled.name.clone() };
            self.tree.add([thread].into_iter().chain(outermost).chain(places), microseconds(used));
        }
    }
}

/// The addresses of a stack, from the innermost to the outermost, and whether the outermost one is the thread's beginning.
fn unwind(
    modules: &Modules,
    cache: &mut CacheNative<framehop::MayAllocateDuringUnwind>,
    registers: Registers,
    stack: &[u8],
) -> (Vec<u64>, bool) {
    let mut read = |address: u64| {
        let at = usize::try_from(address.checked_sub(registers.stack).ok_or(())?).map_err(drop)?;
        let bytes = at.checked_add(8).and_then(|end| stack.get(at..end)).ok_or(())?;
        bytes.try_into().map(u64::from_ne_bytes).map_err(drop)
    };
    let begin = native(registers);
    let mut iterator = modules.unwinder.iter_frames(registers.instruction, begin, cache, &mut read);
    let mut frames = Vec::new();
    loop {
        match iterator.next() {
            Ok(Some(frame)) if frames.len() < MOST_FRAMES => frames.push(frame.address_for_lookup()),
            Ok(None) => return (frames, true),
            Ok(Some(_)) | Err(_) => return (frames, false),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn native(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.instruction, registers.stack, registers.frame)
}

#[cfg(target_arch = "aarch64")]
fn native(registers: Registers) -> UnwindRegsNative {
    // Where the processor signs return addresses, the signature is in the bits above the 48 bits of an address.
    let addresses = framehop::aarch64::PtrAuthMask(u64::MAX >> 16);
    UnwindRegsNative::new_with_ptr_auth_mask(addresses, registers.link, registers.stack, registers.frame)
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(all(test, target_arch = "aarch64"))]
mod tests {
    use super::*;

    #[test]
    fn signatures_of_return_addresses_are_cut_off() {
        let registers = Registers { instruction: 1, stack: 2, frame: 3, link: 0xa5b6_7f12_3456_7890 };
        assert_eq!(native(registers).lr(), 0x7f12_3456_7890);
    }
}
