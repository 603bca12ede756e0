"""No process, of the job or any other, uses a device of the job."""

from jobmeter.diagnose.devices import BUSY, measure_load
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_device
from jobmeter.diagnose.wording import format_length


@Rule(
    title="GPU without a process",
    advice="Request as many devices as there are processes, or start one for each (torchrun --nproc-per-node).",
    source="https://github.com/PrincetonUniversity/job_defense_shield",
    metrics=(*BUSY, "gpu.processes"),
    running=True,
    hides=frozenset({"gpu_idle_allocated"}),
)
def gpu_no_process(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find devices without a process in the driver's list for long, which compute nothing meanwhile."""
    load = {one.member: one for one in measure_load(case, numbers)}
    for signal in case.select_signals("gpu.processes", numbers):
        none = signal.value <= 0
        if signal.member in load:
            none &= ~(load[signal.member].read_at(signal.time) > numbers["idle"])
        longest = case.find_stretch(signal, none, numbers)
        if longest is None:
            continue
        severity = Severity.CRITICAL if longest.length >= numbers["critical"] else Severity.WARNING
        text = f"{case.name_signal(signal)} belongs to the job, but had no process for {format_length(longest.length)}"
        evidence = signal.cite(text, 0.0, 1.0, "{process}", time=longest.start)
        yield rule.report(name_device(signal), severity, longest.span, [evidence], 0.9)
