//! Tests of a mirror beside a study, and of studies that are restored from a mirror.

use super::*;
use ferrotune_journal::Journal;
use ferrotune_space::checkpoint::{checkpoint_file, checkpoint_generation};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::spec::StudySpec;

type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

pub(in crate::supervisor) fn spec(directory: &Path) -> StudySpec {
    let objectives = vec![Objective::new("loss", Direction::Min)];
    StudySpec { directory: directory.to_path_buf(), seed: Some(1), ..StudySpec::new("it", objectives) }
}

#[test]
fn study_comes_back_past_copies_that_were_cut_off() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (study, mirror_folder) = (directory.path().join("it"), directory.path().join("drive/it"));
    let mut journal = Journal::open(&study, &spec(directory.path()))?;
    journal.begin_trial()?;
    fs::write(study.join("objective.so"), "an objective")?;
    let trial = study.join("trials/0");
    fs::create_dir_all(&trial)?;
    let mirror = Mirror::start(&study, &mirror_folder)?;
    for generation in 0..4 {
        fs::write(trial.join(checkpoint_file(generation)), format!("weights {generation}"))?;
        mirror.checkpoint(0, &checkpoint_file(generation));
        mirror.journal();
    }
    drop(mirror);
    let kept = names(&mirror_folder.join("trials/0"), |_| true)?;
    assert_eq!(kept.len(), 4, "the trial still has all of them: {kept:?}");
    // A machine that died during a copy leaves these files.
    fs::write(mirror_folder.join(format!("journal-{}.log", unique(&mirror_folder)?)), "{\"op_co")?;
    fs::create_dir(mirror_folder.join(format!("start-{}", unique(&mirror_folder)?)))?;
    let torn = format!("{}.{}", checkpoint_file(3), unique(&mirror_folder.join("trials/0"))?);
    fs::write(mirror_folder.join("trials/0").join(torn), "weig")?;

    let expected = fs::read(study.join(JOURNAL))?;
    drop(journal);
    fs::remove_dir_all(&study)?;
    restore(&mirror_folder, &study)?;
    assert_eq!(fs::read(study.join(JOURNAL))?, expected);
    assert_eq!(fs::read_to_string(study.join("objective.so"))?, "an objective");
    assert_eq!(fs::read_to_string(trial.join(checkpoint_file(3)))?, "weights 3");
    assert_eq!(Journal::read(&study)?.trials.len(), 1);
    // An empty journal is not a study.
    fs::remove_dir_all(&study)?;
    fs::create_dir(&study)?;
    fs::write(study.join(JOURNAL), "")?;
    restore(&mirror_folder, &study)?;
    assert_eq!(fs::read(study.join(JOURNAL))?, expected);
    // A study that exists is left alone.
    fs::write(study.join("objective.so"), "another")?;
    restore(&mirror_folder, &study)?;
    assert_eq!(fs::read_to_string(study.join("objective.so"))?, "another");
    Ok(())
}

#[test]
fn journal_that_comes_back_is_the_longest_wherever_a_later_copy_was_cut_off() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (study, mirror) = (directory.path().join("it"), directory.path().join("drive/it"));
    let mut journal = Journal::open(&study, &spec(directory.path()))?;
    (0..3).try_for_each(|_| journal.begin_trial().map(drop))?;
    drop(journal);
    let whole = fs::read(study.join(JOURNAL))?;
    fs::create_dir_all(&mirror)?;
    fs::write(mirror.join(format!("journal-{}.log", unique(&mirror)?)), &whole)?;
    let ends = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(place, _)| place + 1);
    let ends = ends.collect::<Vec<_>>();
    assert!(ends.len() > 4, "{}", ends.len());
    // A disk may have stored the length of a file, but not its content yet.
    let cuts = ends.iter().flat_map(|end| [*end, end.saturating_sub(7)]).chain([0]);
    let later = cuts.flat_map(|cut| {
        let zeros = [&whole[..cut], &vec![0; whole.len() + 9 - cut]].concat();
        [whole[..cut].to_vec(), zeros]
    });
    for later in later {
        let cut = mirror.join(format!("journal-{}.log", unique(&mirror)?));
        fs::write(&cut, &later)?;
        fs::remove_dir_all(&study)?;
        restore(&mirror, &study)?;
        let came = fs::read(study.join(JOURNAL))?;
        assert!(came.starts_with(&whole), "{} of {} bytes came back", came.len(), whole.len());
        assert_eq!(Journal::read(&study)?.trials.len(), 3);
        fs::remove_file(cut)?;
    }
    // If all copies are damaged, the search does not begin another study in their place.
    let copy = mirror.join(names(&mirror, guard::is_journal_copy)?.pop().ok_or("no copy")?);
    fs::write(&copy, [&whole[..ends[1]], &b"{}\n"[..], &whole[ends[1]..]].concat())?;
    fs::remove_dir_all(&study)?;
    let refused = restore(&mirror, &study).err().ok_or("it is damaged")?.to_string();
    assert!(refused.contains("line 3") && refused.contains("drive/it"), "{refused}");
    assert!(!study.exists());
    Ok(())
}

#[test]
fn copies_of_a_machine_whose_clock_is_behind_are_kept() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (study, mirror) = (directory.path().join("it"), directory.path().join("drive/it"));
    let mut journal = Journal::open(&study, &spec(directory.path()))?;
    fs::create_dir_all(study.join("trials/0"))?;
    fs::create_dir_all(mirror.join("trials/0"))?;
    // These names have stamps of a future year.
    for count in 0..3 {
        let stamp = format!("0900000000000000000{count}-00000000");
        fs::copy(study.join(JOURNAL), mirror.join(format!("journal-{stamp}.log")))?;
        fs::write(mirror.join("trials/0").join(format!("{}.{stamp}", checkpoint_file(0))), "earlier")?;
    }
    journal.begin_trial()?;
    fs::write(study.join("objective.so"), "an objective")?;
    fs::write(study.join("trials/0").join(checkpoint_file(0)), "weights")?;
    let copier = Mirror::start(&study, &mirror)?;
    copier.journal();
    copier.checkpoint(0, &checkpoint_file(0));
    drop((copier, journal));
    let expected = fs::read(study.join(JOURNAL))?;
    let last = names(&mirror, guard::is_journal_copy)?.pop().ok_or("no copy")?;
    assert_eq!(fs::read(mirror.join(last))?, expected);
    fs::remove_dir_all(&study)?;
    restore(&mirror, &study)?;
    assert_eq!(fs::read(study.join(JOURNAL))?, expected);
    assert_eq!(fs::read_to_string(study.join("trials/0").join(checkpoint_file(0)))?, "weights");
    assert_eq!(fs::read_to_string(study.join("objective.so"))?, "an objective");

    let planted = format!("start-{}-00000000", u64::MAX);
    fs::create_dir(mirror.join(&planted))?;
    let refused = Mirror::start(&study, &mirror).err().ok_or("no later name")?.to_string();
    assert!(refused.contains(&format!("no name sorts after that of {planted}; move it")), "{refused}");
    Ok(())
}

#[test]
fn study_that_gets_its_mirror_late_is_copied_whole() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (study, mirror) = (directory.path().join("it"), directory.path().join("drive/it"));
    let mut journal = Journal::open(&study, &spec(directory.path()))?;
    let checkpoints =
        [(0, 3), (2, 0), (2, 1)].map(|(trial, generation)| of_trial(&study, trial).join(checkpoint_file(generation)));
    for checkpoint in &checkpoints {
        journal.begin_trial()?;
        fs::create_dir_all(checkpoint.parent().ok_or("a checkpoint is in a folder")?)?;
        fs::write(checkpoint, format!("weights of {}", checkpoint.display()))?;
    }
    let contents = || checkpoints.iter().map(fs::read_to_string).collect::<io::Result<Vec<_>>>();
    let (expected, expected_journal) = (contents()?, fs::read(study.join(JOURNAL))?);
    // The first mirror is cut off during a copy. The second one copies that file again, and no other file twice.
    drop(Mirror::start(&study, &mirror)?);
    let copies = names(&of_trial(&mirror, 2), |_| true)?;
    fs::write(of_trial(&mirror, 2).join(&copies[0]), "wei")?;
    drop(Mirror::start(&study, &mirror)?);
    let copied_again = names(&of_trial(&mirror, 2), |_| true)?;
    assert!(copied_again[0] > copies[0] && copied_again[1..] == copies[1..], "{copied_again:?}");
    drop(journal);
    fs::remove_dir_all(&study)?;
    restore(&mirror, &study)?;
    assert_eq!(contents()?, expected);
    assert_eq!(fs::read(study.join(JOURNAL))?, expected_journal);
    Ok(())
}

#[test]
fn mirror_on_a_disk_that_is_not_mounted_is_refused() -> TestResult {
    let directory = tempfile::tempdir()?;
    let drive = directory.path().join("drive/MyDrive");
    let mut spec = spec(&directory.path().join("studies"));
    spec.supervision.mirror = Some(drive.join("studies"));
    let refused = of(&spec).unwrap_err().to_string();
    assert!(refused.contains(&format!("there is no folder {}; mount its disk", drive.display())), "{refused}");
    assert!(!directory.path().join("drive").exists());
    fs::create_dir_all(&drive)?;
    assert_eq!(of(&spec)?, Some(drive.join("studies/it")));
    Ok(())
}

#[test]
fn mirror_has_the_checkpoints_that_the_trial_has() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (study, mirror) = (directory.path().join("it"), directory.path().join("drive/it"));
    let (trial, copies) = (study.join("trials/0"), mirror.join("trials/0"));
    fs::create_dir_all(&trial)?;
    let copier = Copier { study, mirror };
    for generation in 0..6 {
        fs::write(trial.join(checkpoint_file(generation)), "weights")?;
        // A trial keeps its last two checkpoints and the checkpoint of its best step, which is the first one here.
        if generation > 2 {
            fs::remove_file(trial.join(checkpoint_file(generation - 2)))?;
        }
        copier.copy_checkpoint(0, &checkpoint_file(generation))?;
    }
    let copied = || -> io::Result<Vec<Option<u64>>> {
        let names = names(&copies, |_| true)?;
        Ok(names.iter().map(|name| checkpoint_generation(name.rsplit_once('.')?.0)).collect())
    };
    assert_eq!(copied()?, [Some(0), Some(4), Some(5)]);
    // A trial that is executed again writes the same checkpoint again.
    (0..3).try_for_each(|_| copier.copy_checkpoint(0, &checkpoint_file(5)))?;
    assert_eq!(copied()?, [Some(0), Some(4), Some(5), Some(5)]);
    // The last copies are kept although the trial has removed these checkpoints, because a later copy may fail.
    fs::remove_dir_all(&trial)?;
    copier.copy_checkpoint(0, &checkpoint_file(6))?;
    assert_eq!(copied()?, [Some(5), Some(5)]);
    Ok(())
}

#[test]
fn mirror_that_leads_elsewhere_gives_nothing_and_takes_nothing() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (study, drive) = (directory.path().join("it"), directory.path().join("drive/it"));
    let outside = directory.path().join("thesis");
    fs::create_dir(&outside)?;
    ["1", "2", "3"].into_iter().try_for_each(|chapter| fs::write(outside.join(chapter), "a chapter"))?;
    let mut journal = Journal::open(&study, &spec(directory.path()))?;
    journal.begin_trial()?;
    fs::write(study.join("objective.so"), "an objective")?;
    fs::create_dir_all(study.join("trials/0"))?;
    fs::write(study.join("trials/0").join(checkpoint_file(0)), "weights")?;
    // Each trial has a folder in the mirror, in which only the last two files are kept.
    fs::create_dir_all(drive.join("trials"))?;
    std::os::unix::fs::symlink(&outside, drive.join("trials/0"))?;
    let mirror = Mirror::start(&study, &drive)?;
    mirror.checkpoint(0, &checkpoint_file(0));
    mirror.journal();
    drop(mirror);
    assert_eq!(names(&outside, |_| true)?, ["1", "2", "3"]);
    drop(journal);
    fs::remove_dir_all(&study)?;
    let error = restore(&drive, &study).err().ok_or("it came back")?.to_string();
    assert!(error.contains("trials/0 is a symbolic link") && !study.join(JOURNAL).exists(), "{error}");
    // A user's file must not be restored as the study's objective, either.
    fs::remove_file(drive.join("trials/0"))?;
    let start = names(&drive, |name| name.starts_with("start-"))?.pop().ok_or("no start")?;
    let objective = drive.join(start).join("objective.so");
    fs::remove_file(&objective)?;
    std::os::unix::fs::symlink(outside.join("1"), &objective)?;
    let error = restore(&drive, &study).err().ok_or("it came back")?.to_string();
    assert!(error.contains("objective.so is a symbolic link"), "{error}");
    std::os::unix::fs::symlink(&outside, drive.join("other"))?;
    assert!(Mirror::start(&study, &drive).is_err());
    Ok(())
}

#[test]
fn trials_that_cannot_win_leave_the_mirror_too() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (study, mirror_folder) = (directory.path().join("it"), directory.path().join("drive/it"));
    fs::create_dir_all(study.join("trials/2"))?;
    fs::write(study.join("trials/2").join(checkpoint_file(0)), "weights")?;
    let mirror = Mirror::start(&study, &mirror_folder)?;
    mirror.checkpoint(2, &checkpoint_file(0));
    mirror.forget(2);
    drop(mirror);
    assert!(mirror_folder.join("trials").exists() && !mirror_folder.join("trials/2").exists());
    clear(&mirror_folder)?;
    assert_eq!(names(&mirror_folder, |_| true)?, Vec::<String>::new());
    Ok(())
}

#[test]
fn copies_leave_other_files_of_the_mirror_alone() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (study, mirror_folder) = (directory.path().join("it"), directory.path().join("drive/it"));
    let journal = Journal::open(&study, &spec(directory.path()))?;
    drop(journal);
    fs::create_dir_all(study.join("trials/0"))?;
    fs::create_dir_all(mirror_folder.join("trials/0"))?;
    let others = ["journal-1999.log", "journal-of-a-thesis.log", "start-here.txt", "trials/0/notes", "trials/0/a.b"];
    for other in others {
        fs::write(mirror_folder.join(other), other)?;
    }
    let mirror = Mirror::start(&study, &mirror_folder)?;
    for generation in 0..4 {
        fs::write(study.join("trials/0").join(checkpoint_file(generation)), "weights")?;
        mirror.checkpoint(0, &checkpoint_file(generation));
        mirror.journal();
    }
    mirror.forget(0);
    drop(mirror);
    for other in others {
        assert_eq!(fs::read_to_string(mirror_folder.join(other))?, other);
    }
    assert_eq!(names(&mirror_folder.join("trials/0"), |_| true)?, ["a.b", "notes"]);
    Ok(())
}

/// A study with a mirror, whose search has ended.
pub(in crate::supervisor) fn mirrored(
    directory: &Path,
    drive: &Path,
) -> Result<StudySpec, Box<dyn std::error::Error + Send + Sync>> {
    let mut spec = spec(directory);
    spec.supervision.mirror = Some(drive.to_path_buf());
    let journal = Journal::open(&directory.join("it"), &spec)?;
    fs::create_dir_all(directory.join("it/libraries"))?;
    fs::write(directory.join("it/libraries/libstd.so"), "code")?;
    let mirror = Mirror::start(&directory.join("it"), &drive.join("it"))?;
    mirror.journal();
    drop((mirror, journal));
    Ok(spec)
}

#[test]
fn mirror_is_cleared_only_of_what_this_program_made_of_this_study() -> TestResult {
    let root = tempfile::tempdir()?;
    let drive = root.path().join("drive");
    let mut spec = mirrored(&root.path().join("studies"), &drive)?;
    let mirror_folder = drive.join("it");
    let refusal = |spec: &StudySpec| of(spec).err().map(|error| error.to_string());
    assert_eq!(refusal(&spec), None);
    spec.overwrite = true;
    assert_eq!(refusal(&spec), None);

    // The mirror contains a folder of the user's.
    let chapter = mirror_folder.join("thesis/chapter-1.tex");
    fs::create_dir_all(mirror_folder.join("thesis"))?;
    fs::write(&chapter, "words")?;
    let message = refusal(&spec).ok_or("the mirror may not be cleared")?;
    assert!(message.contains("thesis, which is no part of a mirror"), "{message}");
    assert!(clear(&mirror_folder).is_err() && chapter.exists());
    assert!(!names(&mirror_folder, guard::is_journal_copy)?.is_empty());
    // A folder that this program made contains a file of the user's.
    fs::rename(mirror_folder.join("thesis"), root.path().join("thesis"))?;
    let start = names(&mirror_folder, guard::is_start)?.remove(0);
    fs::write(mirror_folder.join(&start).join("notes"), "words")?;
    let message = refusal(&spec).ok_or("the mirror may not be cleared")?;
    assert!(message.contains("notes, which is no part of a mirror"), "{message}");
    fs::remove_file(mirror_folder.join(&start).join("notes"))?;

    // Another folder contains another study of that name.
    let elsewhere = StudySpec { directory: root.path().join("elsewhere"), ..spec.clone() };
    let message = refusal(&elsewhere).ok_or("another study's mirror may not be cleared")?;
    assert!(message.contains("is the mirror of another study"), "{message}");
    let journal = Journal::open(&elsewhere.directory.join("it"), &elsewhere)?;
    drop(journal);
    for overwrite in [false, true] {
        let message = refusal(&StudySpec { overwrite, ..elsewhere.clone() }).ok_or("nor be mixed with this one's")?;
        assert!(message.contains("is the mirror of another study"), "{message}");
    }

    // The mirror is refused, too, if that study's journal is empty, as after a search that found no space for its files.
    fs::write(elsewhere.directory.join("it").join(JOURNAL), "")?;
    let message = refusal(&StudySpec { overwrite: true, ..elsewhere.clone() }).ok_or("it may not be cleared")?;
    assert!(message.contains("is the mirror of another study"), "{message}");

    // The study's own mirror may be cleared, even if the study's folder is gone.
    fs::remove_dir_all(root.path().join("studies"))?;
    assert_eq!(refusal(&spec), None);
    clear(&mirror_folder)?;
    assert_eq!(names(&mirror_folder, |_| true)?, Vec::<String>::new());
    Ok(())
}
