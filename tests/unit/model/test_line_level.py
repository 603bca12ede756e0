"""Tests of the level of a log line, in the forms of common programs; prose and counts have none."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jobmeter.model.line_level import find_level

STATED = [
    ("ERROR: x", "error"),
    ("WARNING:root:msg", "warning"),
    ("INFO", "info"),
    ("2026-01-01 12:00:00,123 - trainer - ERROR - boom", "error"),
    ("2026-11-20T15:00:00.5Z INFO start", "info"),
    ("[2026-11-20 15:00:00] DEBUG x", "debug"),
    ("[rank0] [WARNING] x", "warning"),
    ("name | INFO | hi", "info"),
    ("node1: FATAL: hi", "error"),
    ("I1120 15:00:00.1 x", "info"),
    ("E1120 15:00:00.1 x", "error"),
    ("foo.py:3: UserWarning: x", "warning"),
    ("ValueError: x", "error"),
    ("torch.cuda.OutOfMemoryError: CUDA", "error"),
    ("Traceback (most recent call last):", "error"),
    ('{"level":"warn","x":1}', "warning"),
    ('{"severity": "CRITICAL"}', "error"),
    ("time=x level=error msg=y", "error"),
    ("\x1b[31mERROR\x1b[0m bad", "error"),
    ("error: no such file", "error"),
    ('2024/05/01 12:00:00 [error] 31#31: *1 open() "/x/error.log" failed', "error"),
    ("2024/05/01 12:00:00 [warn] 31#31: x", "warning"),
    ("2024/05/01 12:00:00 [notice] 1#1: start", "info"),
    ("2024/05/01 12:00:00 [emerg] 1#1: bind()", "error"),
    (
        "[Wed Oct 11 14:32:52.123456 2023] [core:error] [pid 35708:tid 4328636416] [client 1.2.3.4] no file",
        "error",
    ),
    ("[Wed Oct 11 14:32:52 2023] [error] [client 1.2.3.4] x", "error"),
    ("[Wed Oct 11 14:32:52.1 2023] [ssl:trace3] [pid 1] x", "debug"),
    ("[Wed Oct 11 14:32:52.1 2023] [mpm_event:notice] [pid 1] x", "info"),
    ("app[1]: ERROR text", "error"),
    ("Nov 20 15:00:00 host1 app[1]: ERROR text", "error"),
    ("Nov 20 15:00:00 host1 app: WARNING disk", "warning"),
    ("2026-11-20T15:00:00.123456+00:00 host app[1]: ERROR text", "error"),
    ("Nov  2 15:00:00 host nginx: 2024/05/01 12:00:00 [error] 31#31: x", "error"),
    ("lvl=error msg=x", "error"),
    ("t=2024-05-01T12:00:00Z lvl=eror msg=x", "error"),
    ('ts=x caller=main.go:12 level=warn msg="error x"', "warning"),
    ('time="2024-05-01T12:00:00Z" level=warning msg="x"', "warning"),
    ('time=x msg="level=error is set" level=info', "info"),
    ("level=info", "info"),
    ("severity=CRITICAL foo", "error"),
    (
        '{"msg":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","level":"error"}',
        "error",
    ),
    ('{"Level":"Warn"}', "warning"),
    ('{"log":{"level":"error"},"message":"x"}', "error"),
    ('{"log":"ERROR: boom\\n","stream":"stderr","time":"2024-05-01T12:00:00Z"}', "error"),
    ('2024-05-01T12:00:00.1Z stderr F {"level":"error","msg":"x"}', "error"),
    ("2024-05-01T12:00:00.1Z stderr F ERROR boom", "error"),
    ("E1124 15:00:00.123456   12345 file.cc:12] text", "error"),
    ("W1124 15:00:00.1 1 reflector.go:138] x", "warning"),
    ("[rank3]:[E1124 15:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog", "error"),
    ("[rank3]: [W1124 15:00:00.1 x.cpp:6] y", "warning"),
    ("[W socket.cpp:601] [c10d] The client socket", "warning"),
    ("[rank2]:[E ProcessGroupNCCL.cpp:523] [Rank 2] Watchdog caught", "error"),
    ("2024-05-01 12:00:00.123456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:485] Unable", "error"),
    ("2024-05-01 12:00:00.1: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT", "warning"),
    ("E0000 00:00:1731954000.123456 12345 cuda_dnn.cc:8310] Unable", "error"),
    ("[NeMo W 2024-05-01 12:00:00 nemo_logging:349] x", "warning"),
    ("[2026-11-20 15:00:00,123 E 1234 1234] (raylet) node_manager.cc:3084: msg", "error"),
    ("(raylet) [2026-11-20 15:00:00,123 E 1234 1234] (raylet) x", "error"),
    ("(pid=123) 2026-11-20 15:00:00,123\tERROR worker.py:12 -- msg", "error"),
    ("2026-11-20 15:00:00,123 - trainer - ERROR - boom", "error"),
    ("2026-11-20 15:00:00,123 ERROR root: boom", "error"),
    ("2026-11-20 15:00:00,123 root ERROR boom", "error"),
    ("[2026-11-20 15:00:00,123][train][ERROR] - msg", "error"),
    ("ERROR:root:boom", "error"),
    ("03/05/2024 12:00:00 - WARNING - transformers.trainer - x", "warning"),
    ("[INFO|trainer.py:123] 2024-05-01 x", "info"),
    ("[2026-11-20 15:00:00,123] [INFO] [real_accelerator.py:161:get] x", "info"),
    ("2026-11-20 15:00:00.123 | ERROR    | __main__:<module>:1 - boom", "error"),
    ("2026-11-20 15:00:00.123 | WARNING  | a.b:c:1 - boom", "warning"),
    ("2026-11-20 15:00:00,123 ERROR [main] com.foo.Bar - msg", "error"),
    ("[main] ERROR com.foo.Bar - msg", "error"),
    ("15:00:00.123 [main] WARN  com.foo.Bar - m", "warning"),
    ("26/11/20 15:00:00 INFO SparkContext: Running", "info"),
    ("2026-11-20 15:00:00.123  INFO 12345 --- [           main] c.e.App : msg", "info"),
    ("[2026-11-20T15:00:00,123][WARN ][o.e.c.r.a.DiskThresholdMonitor] [node] x", "warning"),
    ("2024-05-01 12:00:00,123 [myid:1] - WARN  [main:QuorumPeer@1] - x", "warning"),
    ("[2024-05-01 12:00:00,123] ERROR msg (kafka.server)", "error"),
    ("SEVERE: x", "error"),
    ("2026-11-20T15:00:00.123456Z ERROR my_crate::module: message", "error"),
    ("ERROR my_crate: x", "error"),
    ("[2026-11-20T15:00:00Z ERROR my_crate] msg", "error"),
    ("2026-11-20T15:00:00Z  WARN ThreadId(01) my: x", "warning"),
    (
        "\x1b[2m2026-11-20T15:00:00.123456Z\x1b[0m \x1b[31mERROR\x1b[0m \x1b[2mmy_crate\x1b[0m\x1b[2m:\x1b[0m msg",
        "error",
    ),
    ("ERROR:    Exception in ASGI application", "error"),
    ('INFO:     127.0.0.1:1234 - "GET / HTTP/1.1" 200 OK', "info"),
    ("WARNING:  x", "warning"),
    ("[2026-11-20 15:00:00 +0000] [123] [ERROR] Exception in worker", "error"),
    ("<3>disk", "error"),
    ("<27>1 2026-11-20T15:00:00Z host app 1 - - x", "error"),
    ("<190>Nov 20 15:00:00 host x: y", "info"),
    ("ERRO[0001] msg key=val", "error"),
    ("WARN[0001] m", "warning"),
    ("EROR[11-20|15:00:00] Something key=val", "error"),
    ("2024-05-01T12:00:00.000Z\tERROR\tmain.go:12\tmsg", "error"),
    ("3:04PM ERR msg", "error"),
    ("2024-05-01T12:00:00Z WRN msg", "warning"),
    ("[12:00:00 ERR] msg", "error"),
    ("2024-05-01T12:00:00.000000Z 0 [ERROR] [MY-010119] [Server] Aborting", "error"),
    ("2024-05-01T12:00:00.000000Z 0 [Warning] [MY-1] x", "warning"),
    ('2024-05-01 12:00:00.000 UTC [123] ERROR:  relation "x" does not exist', "error"),
    ("2024-05-01 12:00:00.000 CEST [123] user@db FATAL:  x", "error"),
    ("[2024/05/01 12:00:00] [ info] [engine] started", "info"),
    ("2024-05-01 12:00:00 [info     ] event k=v", "info"),
    ("slurmstepd: error: *** JOB 123 ON node CANCELLED AT x ***", "error"),
    ("[2026-11-20T15:00:00.123] error: Node foo not responding", "error"),
    ("srun: error: node1: task 0: Exited with exit code 1", "error"),
    ("slurmd: debug2: x", "debug"),
    ("file.c:1:2: error: expected ';'", "error"),
    ("train.cu(12): error: x", "error"),
    ("ld: warning: x", "warning"),
    ("fatal error: cuda.h: No such file", "error"),
    ("error[E0308]: mismatched types", "error"),
    ("Error: Cannot find module", "error"),
    ("host:123:456 [0] NCCL WARN Connect to 10.0.0.1 failed", "warning"),
    ("node1:12:34 [0] misc/socket.cc:45 NCCL WARN x", "warning"),
    ("node1:12:34 [0] NCCL INFO Bootstrap", "info"),
    ("[rank0]: Traceback (most recent call last):", "error"),
    ("[rank0]: ValueError: x", "error"),
    ("[1,0]<stderr>:ERROR: x", "error"),
    ("0: ERROR: x", "error"),
    ("KeyError: 0", "error"),
    ("java.lang.NullPointerException: x", "error"),
    ("[2026-11-20 15:00:00,123: INFO/MainProcess] celery ready", "info"),
    ("[20/Nov/2026 15:00:00] ERROR [django.request:1] Internal", "error"),
    ("INFO 11-20 15:00:00 api_server.py:12] msg", "info"),
    ("(EngineCore_0 pid=12) ERROR 11-20 15:00:00 [core.py:12] msg", "error"),
    ("haproxy[12]: [WARNING] 123/1200 x", "warning"),
    ("panic: runtime error: index out of range", "error"),
]
"""Lines as these programs write them, with their levels."""

NOT_STATED = [
    "the ERROR rate is 5",
    "errors: 5",
    "loss INFO 3",
    "ERROR-rate 3",
    "step 1 loss=2",
    '{"level": 3}',
    '{"level": "loud"}',
    "{not json",
    "[1, 2]",
    "",
    "x" * 200 + " ERROR: far behind",
    "2024-05-01T12:00:00.1Z stdout F plain",
    "<300>x",
    "<b>bold</b>",
    "error: 0",
    "errors: 0",
    "no errors found",
    "0 errors, 0 warnings",
    "opened /var/log/error.log",
    "/var/log/error.log: rotated",
    "error.log rotated",
    "the error rate is 0.1",
    "Error rate: 0.1",
    "train error: 0.25 val error: 0.3",
    "loss: 0.1 error: 0.2",
    "error: 0.25 loss: 0.1",
    "MeanSquaredError: 0.031",
    "finished without error",
    "errors=0 warnings=0",
    "error=0",
    "ERROR: 0",
    "# ERROR: 0",
    "ERROR: 0, WARNING: 3",
    "Retrying after error 5",
    "set error level to 3",
    "warning lights tested",
    "critical path took 5 s",
    "informational page",
    "debugging is off",
    "alert manager started",
    '127.0.0.1 - - [20/Nov/2026:15:00:00 +0000] "GET /error HTTP/1.1" 500 12',
    "Downloading error_handler-1.2.tar.gz",
    "[error.log] rotated",
    "2026-11-20 15:00:00 the ERROR rate is 5",
    "compression level=9",
    "step 5: error: 0.25",
    "epoch: 5 error: 0.3",
    "Total: error: 5, warning: 3",
    "test_error ... ok",
    "PASSED tests/test_error.py::test_warning",
    "a fatal flaw",
    "Errors: none",
    "No ERROR here",
]
"""Lines without a level, despite their words."""


@pytest.mark.parametrize(("text", "level"), STATED)
def test_a_line_states_its_level(text, level):
    assert find_level(text) == level


@pytest.mark.parametrize("text", NOT_STATED)
def test_prose_counts_and_names_of_files_state_no_level(text):
    assert find_level(text) is None


@given(st.text(max_size=300))
def test_any_text_has_a_level_or_none(text):
    find_level(text)


LEVELS = {
    "debug": ["trace", "debug"],
    "info": ["info", "notice"],
    "warning": ["warn", "warning"],
    "error": ["error", "err", "crit", "critical", "fatal", "alert", "emerg"],
}
LETTERS = {"D": "debug", "I": "info", "W": "warning", "E": "error", "F": "error"}
_MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds
_PLAIN = st.sampled_from(
    ["the", "disk", "of", "rank", "was", "full", "after", "a", "retry", "step", "went", "on", "loss"]
)
_LOADED = st.sampled_from(["error", "errors", "warning", "info", "error.log", "no", "fatal", "critical", "debug"])
PROSE = st.builds(
    lambda first, words: " ".join([first, *words]), _PLAIN, st.lists(st.one_of(_PLAIN, _LOADED), max_size=8)
)
"""Sentences that begin with a plain word and contain level words."""


@st.composite
def headers(draw):
    """Draw the text before a line's level: times, ranks, hosts and programs, in common orders."""
    moment = draw(_MOMENTS)
    time = draw(
        st.sampled_from(
            [
                "",
                moment.strftime("%Y-%m-%d %H:%M:%S,123 "),
                moment.strftime("%Y/%m/%d %H:%M:%S "),
                moment.strftime("[%Y-%m-%d %H:%M:%S] "),
                moment.isoformat(timespec="microseconds") + " ",
                moment.strftime("%Y-%m-%dT%H:%M:%SZ "),
                moment.strftime("%b %d %H:%M:%S node-7 trainer[42]: "),
                moment.strftime("%Y-%m-%dT%H:%M:%S.5Z stderr F "),
                moment.strftime("[%a %b %d %H:%M:%S.123456 %Y] "),
            ]
        )
    )
    return draw(st.sampled_from(["", "[rank3]: ", "[rank3]:", "0: ", "[1,0]<stderr>:", "(worker pid=12) "])) + time


@st.composite
def stated(draw):
    """Draw a line with a level, and return both."""
    level = draw(st.sampled_from(sorted(LEVELS)))
    word = draw(st.sampled_from(LEVELS[level]))
    text = draw(PROSE)
    anyhow = draw(st.sampled_from([word, word.upper(), word.capitalize()]))
    forms = [
        f"{word.upper()} {text}",
        f"{word.upper()}: {text}",
        f"{word.upper()}:    {text}",
        f"{word.upper()}:root:{text}",
        f"[{anyhow}] {text}",
        f"[{word.upper()} ] {text}",
        f"[core:{word}] [pid 35708] {text}",
        f"app[1]: {word.upper()} {text}",
        f"app: {word.upper()}: {text}",
        f"{anyhow}: {text}",
        f"srun: {word}: {text}",
        f"train.loop - {word.upper()} - {text}",
        f"[main] {word.upper()} com.foo.Bar - {text}",
        f"| {word.upper():8} | {text}",
        f"level={word} msg={json.dumps(text)}",
        f"msg={json.dumps(text)} lvl={anyhow} x=1",
    ]
    return draw(headers()) + draw(st.sampled_from(forms)), level


@given(stated())
def test_a_level_is_found_behind_any_header_in_any_form(line):
    text, level = line
    assert find_level(text) == level, text


@given(stated())
def test_colours_of_a_terminal_change_nothing(line):
    text, level = line
    coloured = " ".join(f"\x1b[1;31m{word}\x1b[0m" for word in text.split(" "))
    assert find_level(coloured) == level, text


@given(headers(), st.sampled_from(sorted(LETTERS)), PROSE, st.booleans())
def test_letters_of_glog_are_levels(header, letter, text, bracket):
    line = f"{letter}1124 15:00:00.123456   12345 file.cc:12] {text}"
    assert find_level(header + ("[" + line if bracket else line)) == LETTERS[letter]


@given(headers(), PROSE)
def test_sentences_state_no_level_whatever_words_they_have(header, text):
    assert find_level(header + text) is None, header + text


@given(
    headers(),
    st.sampled_from([word for words in LEVELS.values() for word in words]),
    st.sampled_from([str.upper, str.lower, str.capitalize]),
    st.one_of(st.floats(0, 1e6, width=32).map(lambda value: f"{value:.4f}"), st.integers(0, 10**6).map(str)),
    st.sampled_from(["", "%", ", 3 more", " | 4", "/10"]),
)
def test_counts_and_measures_state_no_level(header, word, case, number, behind):
    assert find_level(f"{header}{case(word)}: {number}{behind}") is None


@given(st.integers(0, 999), PROSE)
def test_the_priority_of_syslog_is_the_level(number, text):
    expected = ["error", "error", "error", "error", "warning", "info", "info", "debug"][number % 8]
    for line in (f"<{number}>{text}", f"<{number}>1 2026-11-20T15:00:00Z host app 1 - - {text}"):
        found = find_level(line)
        assert found == (expected if number < 192 else None)


@given(
    st.sampled_from(sorted(LEVELS)),
    st.data(),
    st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=300), st.integers(), st.none()), max_size=5),
    st.sampled_from(["", "2026-11-20T15:00:00.1Z stdout F ", "[rank0]: "]),
)
def test_a_level_is_found_anywhere_in_a_json_line(level, data, others, header):
    key = data.draw(st.sampled_from(["level", "Level", "lvl", "severity", "levelname", "log.level"]))
    assume(not {name.lower() for name in others} & {"level", "lvl", "severity", "log"})
    word = data.draw(st.sampled_from(LEVELS[level]))
    case = data.draw(st.sampled_from([str.upper, str.lower, str.capitalize]))
    entry = list({**others, key: case(word)}.items())
    line = json.dumps(dict(data.draw(st.permutations(entry))))
    assert find_level(header + line) == level
