//! Places for arrays: memory files that one side of a connection writes again and again, and the other side reads in turn. Their pages
//! are there, and both sides have mapped them, so that an array costs one copy and no page.
//!
//! Who writes lends a place with its bytes, and writes there again when the reader has given the place back. A place that is lent
//! cannot be written by mistake: its mapping is read-only meanwhile.

use super::{Bytes, Mapped, written_file};
use ferrotune_machine::memory_file::seal_length;
use memmap2::{Mmap, MmapMut};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes of the places of one side that are free: a place that is lent is the array's own memory.
const MOST_FREE_BYTES: usize = 128 << 20;

/// The number of places of one side, free or not, and of those among them in which a plugin may have arrays for long.
const MOST_PLACES: usize = 64;
const MOST_SHARED: usize = 16;

/// The least number of bytes of an array whose place a plugin may use as the array. A process has 65,530 mappings at most: with arrays of
/// this size they suffice for 256 GiB.
pub(crate) const LEAST_SHARED: usize = 4 << 20;

/// The number of a place, which is unique on its connection and side.
pub(crate) type Number = u64;

/// A memory file with its mapping.
#[derive(Debug)]
struct Place<M> {
    number: Number,
    file: File,
    map: M,
    /// Whether the other side knows the place.
    is_known: bool,
    /// How many times all places were forgotten before this one was made.
    age: u64,
}

/// The places that this side writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<Own>>);

#[derive(Debug, Default)]
pub(crate) struct Own {
    free: Vec<Place<MmapMut>>,
    lent: HashMap<Number, Place<Mmap>>,
    /// The number of places, with those that are being written.
    count: usize,
    last: Number,
    /// How many times all places were forgotten.
    age: u64,
    /// Places that are no more, of which the other side has still to learn.
    gone: Vec<Number>,
}

impl Places {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Own> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for an array of this length; none for a very large one, and where too many places are in use: such an array has a file of
    /// its own.
    ///
    /// # Errors
    /// The system's errors, such as a lack of memory.
    pub(crate) fn room(&self, length: usize) -> io::Result<Option<Writing>> {
        let mut own = self.lock();
        let place = match own.take_free(length) {
            Some(place) => place,
            None if length > MOST_FREE_BYTES || own.is_shared_often(length) || !own.has_number() => return Ok(None),
            None => {
                let (file, map) = written_file(length)?;
                seal_length(&file)?;
                own.last += 1;
                own.count += 1;
                Place { number: own.last, file, map, is_known: false, age: own.age }
            }
        };
        Ok(Some(Writing { places: self.clone(), place: Some(place), length }))
    }

    /// The other side does not read the place any more.
    pub(crate) fn returned(&self, number: Number) {
        let mut own = self.lock();
        if let Some(place) = own.lent.remove(&number) {
            let Place { number, file, map, is_known, age } = place;
            match map.make_mut() {
                Ok(map) => own.keep(Place { number, file, map, is_known, age }),
                Err(_) => own.count_out(number),
            }
        }
    }
}

impl Own {
    /// A free place for this length, and not for much more: an array that a plugin uses there has the whole place.
    fn take_free(&mut self, length: usize) -> Option<Place<MmapMut>> {
        let most = length + if length < LEAST_SHARED { length } else { length / 8 };
        let fits = |place: &Place<MmapMut>| (length..=most).contains(&place.map.len());
        let found = self.free.iter().enumerate().filter(|(_, place)| fits(place));
        let (index, _) = found.min_by_key(|(_, place)| place.map.len())?;
        Some(self.free.remove(index))
    }

    /// Whether so many places are lent for arrays of this size that others need the rest.
    fn is_shared_often(&self, length: usize) -> bool {
        let shared = self.lent.values().filter(|place| place.map.len() >= LEAST_SHARED);
        length >= LEAST_SHARED && shared.count() >= MOST_SHARED
    }

    /// Whether one more place is within the limit. Drops the oldest free one where it is not.
    fn has_number(&mut self) -> bool {
        if self.count >= MOST_PLACES && !self.free.is_empty() {
            self.drop_oldest();
        }
        self.count < MOST_PLACES
    }

    /// Keeps a place that is free, and drops the oldest ones beyond the limit.
    fn keep(&mut self, place: Place<MmapMut>) {
        self.free.push(place);
        while self.free.iter().map(|place| place.map.len()).sum::<usize>() > MOST_FREE_BYTES {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let place = self.free.remove(0);
        self.count_out(place.number);
    }

    fn count_out(&mut self, number: Number) {
        self.count -= 1;
        self.gone.push(number);
    }

    /// Forgets all places, as the other side does at the same message. Arrays that are in them stay there.
    pub(crate) fn forget(&mut self) {
        let (last, age) = (self.last, self.age + 1);
        *self = Own { last, age, ..Own::default() };
    }
}

/// A place that is being written.
#[derive(Debug)]
pub(crate) struct Writing {
    places: Places,
    place: Option<Place<MmapMut>>,
    length: usize,
}

/// A place that is lent with its bytes.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) number: Number,
    pub(crate) length: usize,
    /// The file, for a side that does not know the place.
    pub(crate) file: Option<OwnedFd>,
    /// Places that are no more.
    pub(crate) gone: Vec<Number>,
}

impl Writing {
    /// Lends the place. The bytes do not change until it is given back.
    ///
    /// # Errors
    /// The system's errors.
    pub(crate) fn lend(mut self) -> io::Result<Lent> {
        let missing = || io::Error::other("a place is lent twice");
        let Place { number, file, map, is_known, age } = self.place.take().ok_or_else(missing)?;
        let mut own = self.places.lock();
        let is_current = age == own.age;
        let descriptor = if is_known && is_current { Ok(None) } else { file.try_clone().map(|file| Some(file.into())) };
        let (descriptor, map) = match (descriptor, map.make_read_only()) {
            (Ok(descriptor), Ok(map)) => (descriptor, map),
            (Err(error), _) | (_, Err(error)) => {
                if is_current {
                    own.count_out(number);
                }
                return Err(error);
            }
        };
        // The other side has forgotten the places of an earlier age, and keeps this one until it forgets the next ones.
        if is_current {
            own.lent.insert(number, Place { number, file, map, is_known: true, age });
        }
        Ok(Lent { number, length: self.length, file: descriptor, gone: std::mem::take(&mut own.gone) })
    }
}

impl Deref for Writing {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.place.as_ref().map_or(&[], |place| &place.map[..self.length])
    }
}

impl DerefMut for Writing {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.place.as_mut().map_or(&mut [], |place| &mut place.map[..self.length])
    }
}

impl Drop for Writing {
    /// A place that was not lent is free again.
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let mut own = self.places.lock();
            if place.age == own.age {
                own.keep(place);
            }
        }
    }
}

/// The places of the other side, by their numbers.
pub(crate) struct Borrowed {
    maps: Mutex<HashMap<Number, Arc<Mapped>>>,
    give_back: Arc<dyn Fn(Number) + Send + Sync>,
}

impl Borrowed {
    /// No places yet. `give_back` tells the other side that a place is not read any more.
    pub(crate) fn new(give_back: impl Fn(Number) + Send + Sync + 'static) -> Borrowed {
        Borrowed { maps: Mutex::default(), give_back: Arc::new(give_back) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<Number, Arc<Mapped>>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the place is mapped here.
    pub(crate) fn has(&self, number: Number) -> bool {
        self.lock().contains_key(&number)
    }

    /// The bytes in a place, whose file comes with them if the place is new. Where the file cannot be mapped, the place stays lent.
    ///
    /// # Errors
    /// If the place is unknown or shorter, or could be cut; and the system's errors.
    pub(crate) fn loan(&self, number: Number, length: usize, file: Option<File>, gone: &[Number]) -> io::Result<Bytes> {
        let mut maps = self.lock();
        maps.retain(|number, _| !gone.contains(number));
        if let Some(file) = file {
            maps.insert(number, Arc::new(Mapped::of_place(file)?));
        }
        let map = maps.get(&number).filter(|map| map.len() >= length).cloned();
        let map = map.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a place for an array is missing"))?;
        Ok(Bytes::Lent(Arc::new(Loan { map, number, length, give_back: self.give_back.clone() })))
    }
}

impl fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Borrowed").field("maps", &self.maps).finish_non_exhaustive()
    }
}

/// Bytes in a place of the other side, which gets the place back when this is dropped.
pub(crate) struct Loan {
    map: Arc<Mapped>,
    number: Number,
    length: usize,
    give_back: Arc<dyn Fn(Number) + Send + Sync>,
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[..self.length]
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("number", &self.number).field("length", &self.length).finish_non_exhaustive()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        (self.give_back)(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn lend(places: &Places, bytes: &[u8]) -> io::Result<Option<Lent>> {
        let Some(mut room) = places.room(bytes.len())? else { return Ok(None) };
        room.copy_from_slice(bytes);
        room.lend().map(Some)
    }

    #[test]
    fn a_place_is_written_again_after_it_has_come_back() -> Result<(), Box<dyn std::error::Error>> {
        let (places, returned) = (Places::default(), Arc::new(AtomicU64::new(0)));
        let into = returned.clone();
        let borrowed = Borrowed::new(move |number| into.store(number, Ordering::Relaxed));
        let take = |bytes: &[u8]| -> Result<(Number, Bytes), Box<dyn std::error::Error>> {
            let lent = lend(&places, bytes)?.ok_or("no place")?;
            let file = lent.file.map(File::from);
            Ok((lent.number, borrowed.loan(lent.number, lent.length, file, &lent.gone)?))
        };
        let (first, loan) = take(&[1; 10_000])?;
        let (second, other) = take(&[2; 10_000])?;
        assert!(first != second && loan[..] == [1; 10_000] && other[..] == [2; 10_000]);
        let copy = loan.clone();
        drop(loan);
        assert_eq!(returned.load(Ordering::Relaxed), 0, "somebody still reads it");
        drop(copy);
        assert_eq!(returned.load(Ordering::Relaxed), first);
        places.returned(first);
        let (third, loan) = take(&[3; 9_000])?;
        assert!(third == first && loan[..] == [3; 9_000] && other[..] == [2; 10_000]);
        Ok(())
    }

    #[test]
    fn free_places_have_a_limit_and_the_oldest_one_goes() -> Result<(), Box<dyn std::error::Error>> {
        let places = Places::default();
        assert!(places.room(MOST_FREE_BYTES + 1)?.is_none());
        let large = vec![1; MOST_FREE_BYTES / 4 * 3];
        let first = lend(&places, &large)?.ok_or("no place")?;
        let second = lend(&places, &large)?.ok_or("no place")?;
        places.returned(first.number);
        places.returned(second.number);
        let third = lend(&places, &large)?.ok_or("no place")?;
        assert_eq!((third.number, third.gone, third.file.is_some()), (second.number, vec![first.number], false));
        Ok(())
    }

    #[test]
    fn the_number_of_places_has_a_limit() -> Result<(), Box<dyn std::error::Error>> {
        let places = Places::default();
        let mut last = 0;
        for _ in 0..MOST_PLACES {
            last = lend(&places, &[1; 10_000])?.ok_or("no place")?.number;
        }
        assert!(places.room(10_000)?.is_none());
        places.returned(last);
        assert!(places.room(5_000)?.is_some());
        let other = lend(&places, &[1; 30_000])?.ok_or("no place")?;
        assert_eq!(other.gone, [last]);
        Ok(())
    }

    #[test]
    fn arrays_that_stay_leave_places_for_others() -> Result<(), Box<dyn std::error::Error>> {
        let (places, large) = (Places::default(), vec![1; LEAST_SHARED]);
        for _ in 0..MOST_SHARED {
            lend(&places, &large)?.ok_or("no place")?;
        }
        assert!(places.room(large.len())?.is_none());
        assert!(places.room(10_000)?.is_some());
        places.returned(1);
        assert!(places.room(large.len())?.is_some());
        Ok(())
    }

    #[test]
    fn forgotten_places_are_not_used_again() -> Result<(), Box<dyn std::error::Error>> {
        let places = Places::default();
        let lent = lend(&places, &[1; 10_000])?.ok_or("no place")?;
        let mut writing = places.room(20_000)?.ok_or("no place")?;
        places.lock().forget();
        places.returned(lent.number);
        writing.fill(7);
        assert!(writing.lend()?.file.is_some());
        let next = lend(&places, &[2; 10_000])?.ok_or("no place")?;
        assert!(next.number > lent.number && next.file.is_some());
        Ok(())
    }
}
