use super::*;

fn failure(before_start: bool, may_heal: bool) -> RunFailure {
    RunFailure { text: "broken".to_owned(), before_start, may_heal }
}

/// A connector that publishes.
fn working() -> Machine {
    let (mut machine, step) = Machine::new(Target::Running);
    assert_eq!(step, Some(Step::Start(1)));
    machine.on(Event::Reported(1, Report::Working), 0.0);
    machine
}

fn states(machine: &Machine) -> (State, Option<State>) {
    let shown = machine.shown();
    (shown.connector, shown.task)
}

#[test]
fn a_new_connector_runs_unless_it_is_to_be_paused_or_stopped() {
    let (machine, step) = Machine::new(Target::Running);
    assert_eq!(step, Some(Step::Start(1)));
    assert_eq!(states(&machine), (State::Running, Some(State::Unassigned)));
    let (machine, step) = Machine::new(Target::Paused);
    assert_eq!((step, machine.is_idle()), (None, true));
    assert_eq!(states(&machine), (State::Paused, Some(State::Paused)));
    let (machine, step) = Machine::new(Target::Stopped);
    assert_eq!((step, machine.is_idle()), (None, true));
    assert_eq!(states(&machine), (State::Stopped, None));
}

#[test]
fn it_is_paused_or_stopped_once_its_run_has_ended() {
    for (target, shown) in [
        (Target::Paused, (State::Paused, Some(State::Paused))),
        (Target::Stopped, (State::Stopped, None)),
    ] {
        let mut machine = working();
        assert_eq!(machine.on(Event::Target(target), 0.0), Some(Step::Stop(1)));
        assert_eq!(states(&machine), (State::Running, Some(State::Running)));
        assert!(!machine.is_idle());
        assert_eq!(machine.on(Event::Ended(1, Ok(())), 0.0), None);
        assert_eq!(states(&machine), shown);
        assert!(machine.shown().trace.unwrap().contains("keeps WAL"));
        assert_eq!(machine.on(Event::Target(Target::Running), 0.0), Some(Step::Start(2)));
    }
}

#[test]
fn what_is_asked_again_changes_nothing() {
    let mut machine = working();
    assert_eq!(machine.on(Event::Target(Target::Running), 0.0), None);
    machine.on(Event::Target(Target::Paused), 0.0);
    assert_eq!(machine.on(Event::Target(Target::Paused), 0.0), None);
    assert_eq!(machine.on(Event::Target(Target::Stopped), 0.0), None);
}

#[test]
fn who_changes_their_mind_while_it_ends_has_it_begin_again() {
    let mut machine = working();
    machine.on(Event::Target(Target::Paused), 0.0);
    assert_eq!(machine.on(Event::Target(Target::Running), 0.0), None);
    assert_eq!(machine.on(Event::Ended(1, Ok(())), 0.0), Some(Step::Start(2)));
}

#[test]
fn a_failed_run_is_tried_again_after_longer_and_longer_waits() {
    let (mut machine, _) = Machine::new(Target::Running);
    let mut waits = Vec::new();
    for number in 1..=9 {
        let step = machine.on(Event::Ended(number, Err(failure(false, true))), 0.0);
        let Some(Step::RetryIn(of, wait)) = step else { panic!("{step:?}") };
        assert_eq!(of, number);
        waits.push(wait.as_secs());
        assert_eq!(states(&machine), (State::Running, Some(State::Failed)));
        assert_eq!(machine.on(Event::RetryDue(number), 0.0), Some(Step::Start(number + 1)));
        assert_eq!(states(&machine), (State::Running, Some(State::Restarting)));
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    machine.on(Event::Reported(10, Report::Working), 0.0);
    let step = machine.on(Event::Ended(10, Err(failure(false, true))), 0.0);
    assert_eq!(step, Some(Step::RetryIn(10, RETRY_FIRST)), "it has worked meanwhile");
}

#[test]
fn what_cannot_heal_stays_failed_until_somebody_asks() {
    let (mut machine, _) = Machine::new(Target::Running);
    assert_eq!(machine.on(Event::Ended(1, Err(failure(true, false))), 0.0), None);
    assert_eq!(states(&machine), (State::Failed, None));
    assert_eq!(machine.shown().trace.as_deref(), Some("broken"));
    let restart = Restart { include_tasks: true, only_failed: true };
    assert_eq!(machine.on(Event::Restart(restart), 0.0), Some(Step::Start(2)));
    machine.on(Event::Ended(2, Err(failure(true, false))), 0.0);
    assert_eq!(machine.on(Event::Reconfigured, 0.0), Some(Step::Start(3)));
}

#[test]
fn a_restart_is_of_what_kafka_connect_restarts() {
    let restart = |include_tasks, only_failed| Restart { include_tasks, only_failed };
    let mut machine = working();
    // Of the connector alone, which does nothing: the task goes on.
    assert_eq!(machine.on(Event::Restart(restart(false, false)), 0.0), None);
    assert_eq!(machine.restarted(restart(false, false)), [true, false]);
    for only_failed in [restart(true, true), restart(false, true)] {
        assert_eq!(machine.on(Event::Restart(only_failed), 0.0), None);
        assert_eq!(machine.restarted(only_failed), [false, false]);
    }
    assert_eq!(machine.restarted(restart(true, false)), [true, true]);
    assert_eq!(machine.on(Event::Restart(restart(true, false)), 0.0), Some(Step::Stop(1)));
    assert_eq!(states(&machine), (State::Running, Some(State::Restarting)));
    assert_eq!(machine.on(Event::Ended(1, Ok(())), 0.0), Some(Step::Start(2)));
    assert_eq!(states(&machine), (State::Running, Some(State::Restarting)));
    machine.on(Event::Reported(2, Report::Working), 0.0);
    assert_eq!(states(&machine), (State::Running, Some(State::Running)));
}

#[test]
fn a_restart_of_the_connector_alone_mends_a_failed_task() {
    let mut machine = working();
    machine.on(Event::Ended(1, Err(failure(false, true))), 0.0);
    assert_eq!(machine.on(Event::Restart(Restart::default()), 0.0), Some(Step::Start(2)));
    // The wait that had begun before is nobody's.
    assert_eq!(machine.on(Event::RetryDue(1), 0.0), None);
}

#[test]
fn a_restart_runs_nothing_that_is_paused_or_stopped() {
    for target in [Target::Paused, Target::Stopped] {
        let (mut machine, _) = Machine::new(target);
        let restart = Restart { include_tasks: true, only_failed: false };
        for event in [Event::Restart(restart), Event::RestartTask, Event::Reconfigured] {
            assert_eq!(machine.on(event, 0.0), None);
        }
        assert!(machine.is_idle());
    }
}

#[test]
fn the_end_of_another_run_is_passed_over() {
    let mut machine = working();
    machine.on(Event::Reconfigured, 0.0);
    machine.on(Event::Ended(1, Ok(())), 0.0);
    let before = machine.clone();
    machine.on(Event::Ended(1, Err(failure(false, true))), 0.0);
    machine.on(Event::Reported(1, Report::Working), 0.0);
    assert_eq!(machine, before);
}

#[test]
fn what_a_run_says_shows() {
    let mut machine = working();
    machine.on(Event::Reported(1, Report::Waiting("no broker".into())), 0.0);
    assert_eq!(states(&machine), (State::Running, Some(State::Restarting)));
    assert_eq!(machine.shown().trace.as_deref(), Some("no broker"));
    machine.on(Event::Reported(1, Report::Standby("another has the slot".into())), 0.0);
    assert_eq!(states(&machine), (State::Running, Some(State::Unassigned)));
}

#[test]
fn a_run_that_fails_in_its_end_has_ended() {
    let mut machine = working();
    machine.on(Event::Target(Target::Stopped), 0.0);
    assert_eq!(machine.on(Event::Ended(1, Err(failure(false, true))), 0.0), None);
    assert_eq!(states(&machine), (State::Stopped, None));
}

#[test]
fn pausing_what_has_failed_ends_its_waits() {
    let mut machine = working();
    machine.on(Event::Ended(1, Err(failure(false, true))), 0.0);
    assert_eq!(machine.on(Event::Target(Target::Paused), 0.0), None);
    assert_eq!(states(&machine), (State::Paused, Some(State::Paused)));
    assert_eq!(machine.on(Event::RetryDue(1), 0.0), None);
    assert_eq!(machine.on(Event::Target(Target::Running), 0.0), Some(Step::Start(2)));
}

#[test]
fn nothing_begins_behind_the_shut_down() {
    let mut machine = working();
    assert_eq!(machine.on(Event::ShutDown, 0.0), Some(Step::Stop(1)));
    assert_eq!(machine.on(Event::Reconfigured, 0.0), None);
    assert_eq!(machine.on(Event::Ended(1, Ok(())), 0.0), None);
    assert_eq!(machine.on(Event::Target(Target::Running), 0.0), None);
    assert!(machine.is_idle());
    assert_eq!(machine.target(), Target::Running, "it goes on with the next process");
}
