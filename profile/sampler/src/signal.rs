//! The handler of the sampling signal, which copies the registers and the stack of the thread on which the signal arrives.
//!
//! The handler makes one system call and touches only memory that is never freed, so it is safe at any instruction. It copies the
//! stack with `pwrite` into a file in memory: the system stops at the end of a stack, where a plain copy would crash.
#![expect(unsafe_code, reason = "signal handlers and timers of threads, which rustix does not have")]

use crate::error::SamplerError;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The number of bytes of a stack that are copied, from its innermost frame on.
pub(crate) const STACK_BYTES: usize = 64 << 10;

/// The greatest number of threads that can be sampled at a time.
pub(crate) const MOST_THREADS: usize = 256;

const FREE: u32 = 0;
const WRITING: u32 = 1;
const FULL: u32 = 2;

/// The place for one sample of one thread. A signal that finds a full slot leaves its sample as it is.
struct Slot {
    state: AtomicU32,
    registers: [AtomicU64; 4],
    bytes: AtomicU64,
}

static SLOTS: [Slot; MOST_THREADS] = [const {
    Slot { state: AtomicU32::new(FREE), registers: [const { AtomicU64::new(0) }; 4], bytes: AtomicU64::new(0) }
}; MOST_THREADS];

/// The descriptor of the file with the stacks. It stays open: a signal may still come when all timers have been deleted.
static STACKS: AtomicI32 = AtomicI32::new(-1);

/// The registers at which unwinding begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    pub(crate) instruction: u64,
    pub(crate) stack: u64,
    pub(crate) frame: u64,
    /// The return address, where the architecture has a register for it.
    pub(crate) link: u64,
}

/// Prepares this process for timers: creates the file for the stacks and installs the handler.
pub(crate) fn prepare() -> Result<(), SamplerError> {
    if STACKS.load(Ordering::Acquire) < 0 {
        let file = memfd_create("ferrotune-samples", MemfdFlags::CLOEXEC);
        let file = file.map_err(SamplerError::system("a file in memory for the stacks"))?;
        STACKS.store(file.into_raw_fd(), Ordering::Release);
    }
    for slot in &SLOTS {
        slot.state.store(FREE, Ordering::Release);
    }
    let own = on_tick as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    let is_free = |handler: usize| handler == libc::SIG_DFL || handler == libc::SIG_IGN || handler == own;
    // SAFETY: a `sigaction` of zeros is valid, and `on_tick` has the signature that SA_SIGINFO promises.
    let result = unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(libc::SIGPROF, std::ptr::null(), &mut present) {
            0 if !is_free(present.sa_sigaction) => return Err(SamplerError::SignalTaken),
            0 => {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = own;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
                libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut())
            }
            error => error,
        }
    };
    checked(result).map_err(SamplerError::system("a handler of SIGPROF"))
}

/// Frees the memory of the copied stacks. The handler stays installed: without it, a late signal would end the process.
pub(crate) fn release() -> Result<(), SamplerError> {
    rustix::fs::ftruncate(stacks(), 0).map_err(SamplerError::system("to empty a file in memory"))
}

/// Blocks all signals on the calling thread: the signals of the process are for the threads that run cells.
pub(crate) fn take_no_signals() {
    // SAFETY: the set is filled before it is used.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// The CPU time that a thread of this process has used; none if the thread has ended.
pub(crate) fn cpu_time(thread: i32) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    checked(unsafe { libc::clock_gettime(cpu_clock(thread), &mut time) }).ok()?;
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// Linux' number for the clock of a thread's CPU time (`make_thread_cpuclock` in `include/linux/posix-timers.h`).
fn cpu_clock(thread: i32) -> libc::clockid_t {
    const OF_THREAD_BY_SCHEDULER: i32 = 6;
    (!thread << 3) | OF_THREAD_BY_SCHEDULER
}

/// A timer that sends a thread the signal after each period of CPU time, until this value is dropped.
pub(crate) struct Timer {
    id: libc::timer_t,
}

impl Timer {
    pub(crate) fn start(thread: i32, slot: usize, period: Duration) -> io::Result<Self> {
        SLOTS[slot].state.store(FREE, Ordering::Release);
        let mut id = std::ptr::null_mut();
        // SAFETY: a `sigevent` of zeros is valid, and both structures outlive the calls.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGPROF;
            event.sigev_value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(slot) };
            event.sigev_notify_thread_id = thread;
            checked(libc::timer_create(cpu_clock(thread), &mut event, &mut id))?;
            let timer = Self { id };
            // The first period differs between threads, so that threads that begin together are not sampled together.
            let first = period.mul_f64(0.1 + 0.9 * (slot as f64 * 0.618).fract());
            let times = libc::itimerspec { it_interval: timespec(period), it_value: timespec(first) };
            checked(libc::timer_settime(id, 0, &times, std::ptr::null_mut()))?;
            Ok(timer)
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer was created by this value, which deletes it once.
        unsafe { libc::timer_delete(self.id) };
    }
}

/// Takes the sample of a slot, if there is one: the registers, and the length of the stack that is now in `stack`.
pub(crate) fn take(slot: usize, stack: &mut [u8; STACK_BYTES]) -> Option<(Registers, usize)> {
    let own = &SLOTS[slot];
    if own.state.load(Ordering::Acquire) != FULL {
        return None;
    }
    let [instruction, pointer, frame, link] = own.registers.each_ref().map(|value| value.load(Ordering::Relaxed));
    let bytes = usize::try_from(own.bytes.load(Ordering::Relaxed)).unwrap_or(0).min(STACK_BYTES);
    let read = rustix::io::pread(stacks(), &mut stack[..bytes], offset(slot)).unwrap_or(0);
    own.state.store(FREE, Ordering::Release);
    Some((Registers { instruction, stack: pointer, frame, link }, read))
}

/// The signal's handler, which runs on the sampled thread, at any of its instructions.
extern "C" fn on_tick(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: for SA_SIGINFO, the system calls the handler with valid `info` and `context`. Every libc has errno at this address.
    unsafe {
        // A signal that does not come from a timer has no slot.
        if (*info).si_code != libc::SI_TIMER {
            return;
        }
        let errno = libc::__errno_location();
        let before = *errno;
        copy((*info).si_value().sival_ptr.addr(), registers(&*context.cast::<libc::ucontext_t>()));
        *errno = before;
    }
}

fn copy(slot: usize, registers: Registers) {
    let Some(own) = SLOTS.get(slot) else { return };
    if own.state.compare_exchange(FREE, WRITING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let values = [registers.instruction, registers.stack, registers.frame, registers.link];
    for (register, value) in own.registers.iter().zip(values) {
        register.store(value, Ordering::Relaxed);
    }
    let from = usize::try_from(registers.stack).unwrap_or(0);
    let offset = libc::off_t::try_from(offset(slot)).unwrap_or(0);
    // SAFETY: the system checks the memory that it reads, and stops where no memory is mapped.
    let written = unsafe {
        libc::pwrite(STACKS.load(Ordering::Acquire), std::ptr::without_provenance(from), STACK_BYTES, offset)
    };
    own.bytes.store(u64::try_from(written).unwrap_or(0), Ordering::Relaxed);
    own.state.store(FULL, Ordering::Release);
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let register = |index: c_int| context.uc_mcontext.gregs[index as usize].cast_unsigned();
    Registers {
        instruction: register(libc::REG_RIP),
        stack: register(libc::REG_RSP),
        frame: register(libc::REG_RBP),
        link: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers { instruction: machine.pc, stack: machine.sp, frame: machine.regs[29], link: machine.regs[30] }
}

fn offset(slot: usize) -> u64 {
    (slot * STACK_BYTES) as u64
}

fn stacks() -> BorrowedFd<'static> {
    let number: RawFd = STACKS.load(Ordering::Acquire);
    assert!(number >= 0, "`prepare` comes before everything else");
    // SAFETY: the file is never closed.
    unsafe { BorrowedFd::borrow_raw(number) }
}

fn timespec(time: Duration) -> libc::timespec {
    // SAFETY: a `timespec` of zeros is valid; on some systems it has padding, which no literal can name.
    let mut result: libc::timespec = unsafe { std::mem::zeroed() };
    result.tv_sec = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
    result.tv_nsec = time.subsec_nanos().into();
    result
}

fn checked(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
