//! The files whose code is loaded into this process, and their unwind tables.

use framehop::{ExplicitModuleSectionInfo, Module, Unwinder, UnwinderNative};
use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSection, ObjectSegment};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The name of the code that the kernel maps into every process, for example to read the clock.
const VDSO: &str = "[vdso]";

/// The files whose code is loaded into this process.
#[derive(Default)]
pub(crate) struct Modules {
    pub(crate) unwinder: UnwinderNative<Vec<u8>, framehop::MayAllocateDuringUnwind>,
    /// By the end address of each loaded file: its start address, the difference from the addresses in the file, and its index in `paths`.
    loaded: BTreeMap<u64, (u64, u64, u32)>,
    pub(crate) paths: Vec<String>,
    /// The start addresses and paths of the files that have been examined, also of those that are no ELF files.
    seen: HashSet<(u64, String)>,
}

impl Modules {
    /// Adds the files that have been loaded since the last call.
    pub(crate) fn update(&mut self) {
        // The text is empty where the system has no such file; then addresses have no names.
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        for (path, range) in files(&maps) {
            if self.seen.insert((range.start, path.clone())) {
                self.add(path, range);
            }
        }
    }

    /// The index of the file that contains an address, and the corresponding address in the ELF file.
    pub(crate) fn find(&self, address: u64) -> Option<(u32, u64)> {
        let (_, (start, bias, index)) = self.loaded.range(address + 1..).next()?;
        (*start <= address).then(|| (*index, address.wrapping_sub(*bias)))
    }

    fn add(&mut self, path: String, range: Range<u64>) {
        let sections = if path == VDSO {
            own_memory(&range).and_then(|bytes| sections(bytes.as_slice()))
        } else {
            File::open(&path).ok().and_then(|file| sections(&ReadCache::new(file)))
        };
        let Some((first, sections)) = sections else { return };
        let bias = range.start.wrapping_sub(first);
        let index = u32::try_from(self.paths.len()).unwrap_or(u32::MAX);
        self.loaded.insert(range.end, (range.start, bias, index));
        self.unwinder.add_module(Module::new(path.clone(), range, bias, sections));
        self.paths.push(path);
    }
}

/// The code files in a text of the form of `/proc/self/maps`, each with its whole range of addresses.
fn files(maps: &str) -> Vec<(String, Range<u64>)> {
    let mut files: Vec<(String, Range<u64>, bool)> = Vec::new();
    for line in maps.lines() {
        let mut words = line.splitn(6, ' ');
        let (Some(addresses), Some(permissions)) = (words.next(), words.next()) else { continue };
        let path = words.nth(3).map(str::trim_start).unwrap_or_default();
        let Some((start, end)) = addresses.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else { continue };
        if !path.starts_with('/') && path != VDSO {
            continue;
        }
        let is_code = permissions.contains('x');
        match files.last_mut().filter(|(last, ..)| last == path) {
            Some((_, range, has_code)) => {
                range.end = end;
                *has_code |= is_code;
            }
            None => files.push((path.to_owned(), start..end, is_code)),
        }
    }
    files.into_iter().filter(|(.., has_code)| *has_code).map(|(path, range, _)| (path, range)).collect()
}

fn own_memory(range: &Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, range.start).ok()?;
    Some(bytes)
}

/// The address that an ELF file gives to its first byte, and the file's unwind sections; none for a file that is no ELF file.
fn sections<'data, R: ReadRef<'data>>(data: R) -> Option<(u64, ExplicitModuleSectionInfo<Vec<u8>>)> {
    let file = object::File::parse(data).ok()?;
    let first = file.segments().find(|segment| segment.file_range().0 == 0)?.address();
    let section = |name: &str| file.section_by_name(name);
    let range = |name: &str| section(name).map(|section| section.address()..section.address() + section.size());
    let bytes = |name: &str| section(name).and_then(|section| section.data().ok().map(<[u8]>::to_vec));
    let info = ExplicitModuleSectionInfo {
        text_svma: range(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: bytes(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: bytes(".eh_frame_hdr"),
        ..ExplicitModuleSectionInfo::default()
    };
    Some((first, info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_code_have_all_their_addresses() {
        let maps = "1000-2000 r--p 00000000 08:01 7 /lib/a b.so\n2000-3000 r-xp 00001000 08:01 7 /lib/a b.so\n\
                    3000-4000 rw-p 00000000 00:00 0 \n4000-5000 r--p 00000000 08:01 8 /usr/share/data\n\
                    5000-6000 rw-p 00000000 00:00 0 [heap]\n6000-7000 r-xp 00000000 00:00 0 [vdso]\nnonsense\n";
        let expected = [("/lib/a b.so".to_owned(), 0x1000..0x3000), (VDSO.to_owned(), 0x6000..0x7000)];
        assert_eq!(files(maps), expected);
    }

    #[test]
    fn own_code_is_found_as_its_file_counts() {
        let mut modules = Modules::default();
        modules.update();
        let address = own_code_is_found_as_its_file_counts as fn() as usize as u64;
        let (module, inside) = modules.find(address).unwrap();
        assert_eq!(modules.paths[module as usize], std::env::current_exe().unwrap().to_str().unwrap());
        assert!(inside < address);
        assert_eq!(modules.find(1), None);
        assert!(modules.paths.iter().any(|path| path == VDSO), "{:?}", modules.paths);
    }
}
