"""Tests of energy counters and power of the node: files, programs and controllers of recorded shape, random values."""

import http.server
import json
import math
import ssl
import threading
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.certificates import make
from tests.support.waiting import SECONDS
from tests.unit.collect.trees import plant

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.energy.idle import IdlePower
from jobmeter.collect.energy.polled import (
    IpmiPower,
    PowerCollector,
    PowerPoller,
    RedfishPower,
    RedfishSettings,
    parse_power,
    read_sensor_power,
)
from jobmeter.collect.energy.sources import EnergyCollector, EnergyReading, EnergyTotal
from jobmeter.errors import InvalidRequestError, UnavailableError
from jobmeter.testing.collector import NOW_MS, CollectorContract

PLACE = NodeIdentity("n1")
RANGE = 262_143.328850
ZONES = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram", "intel-rapl:1": "psys"}
RAPL = {
    f"sys/class/powercap/{zone}/{file}": text
    for zone, name in ZONES.items()
    for file, text in {
        "name": f"{name}\n",
        "energy_uj": "1000000\n",
        "max_energy_range_uj": "262143328850\n",
    }.items()
} | {"sys/class/powercap/intel-rapl-mmio:0/name": "package-0\n", "sys/class/powercap/dtpm/enabled": "1\n"}
CRAY = {
    "sys/cray/pm_counters/energy": "4709337659 J 1784929200280410 us\n",
    "sys/cray/pm_counters/cpu_energy": "376665426 J 1784929200386951 us\n",
    "sys/cray/pm_counters/accel2_energy": "921658274 J 1784929200361701 us\n",
    "sys/cray/pm_counters/power": "495 W 1784929200356706 us\n",
    "sys/cray/pm_counters/freshness": "47760686\n",
}


def found(collector):
    return {tuple(value for _, value in s.series.labels): s.value for s in collector.collect(NOW_MS)}


class TestEnergy(CollectorContract):
    @pytest.fixture
    def collector(self, tmp_path):
        return EnergyCollector(PLACE, sys_root=f"{plant(tmp_path, RAPL, CRAY)}/sys")

    def test_counters_begin_at_the_first_reading(self, collector, tmp_path):
        assert found(collector) == dict.fromkeys(
            [
                ("cpu", "rapl/package-0"),
                ("memory", "rapl/dram-0"),
                ("node", "rapl/psys"),
                ("node", "cray/energy"),
                ("cpu", "cray/cpu"),
                ("accelerator", "cray/accel2"),
            ],
            0.0,
        )
        plant(
            tmp_path,
            {
                "sys/class/powercap/intel-rapl:0/energy_uj": "3500000\n",
                "sys/class/powercap/intel-rapl:0:1/energy_uj": "400000\n",
                "sys/cray/pm_counters/energy": "4709337700 J 1784929200280410 us\n",
            },
        )
        values = found(collector)
        assert values["cpu", "rapl/package-0"] == 2.5
        assert values["memory", "rapl/dram-0"] == pytest.approx(RANGE - 0.6)
        assert values["node", "cray/energy"] == 41

    def test_a_counter_that_is_read_too_rarely_is_absent(self, tmp_path):
        """The counter may wrap more than once between two readings."""
        times = iter(range(0, 10**14, 10**12))
        collector = EnergyCollector(PLACE, sys_root=f"{plant(tmp_path, RAPL)}/sys", elapsed=lambda: next(times))
        assert set(found(collector).values()) == {0.0}
        assert found(collector) == {}
        assert found(collector) == {}

    @pytest.mark.parametrize(("device", "kinds"), [("0x74a0", {"module", "node", "accelerator"}), ("0x74a1", None)])
    def test_energy_of_one_module_is_in_its_accelerators_alone(self, tmp_path, device, kinds):
        card = {"sys/class/drm/card0/device/vendor": "0x1002\n", "sys/class/drm/card0/device/device": f"{device}\n"}
        collector = EnergyCollector(PLACE, sys_root=f"{plant(tmp_path, RAPL, CRAY, card)}/sys")
        assert {kind for kind, _ in found(collector)} == (kinds or {"cpu", "memory", "node", "accelerator"})

    def test_a_counter_that_may_not_be_read_is_absent(self, tmp_path):
        texts = {name: text for name, text in RAPL.items() if not name.endswith("energy_uj")}
        assert found(EnergyCollector(PLACE, sys_root=f"{plant(tmp_path, texts)}/sys")) == {}


def test_counters_that_change_while_they_are_read_are_absent(tmp_path, monkeypatch):
    root = plant(tmp_path, CRAY)
    numbers = iter(range(100))
    original = EnergyCollector(PLACE, sys_root=f"{root}/sys")
    monkeypatch.setattr(
        "jobmeter.collect.energy.sources.files.read_text",
        lambda path: str(next(numbers)) if path.endswith("freshness") else "5 J 1 us",
    )
    assert found(original) == {}


@given(st.lists(st.tuples(st.floats(0.1, 250), st.floats(0, 1000)), max_size=30), st.floats(0, RANGE - 1))
def test_energy_is_exact_when_the_counter_wraps_between_readings(steps, begin):
    """Each reading comes before the counter can wrap twice."""
    total = EnergyTotal()
    now_ns, joules = 0, begin
    total.update(EnergyReading("cpu", "x", joules, RANGE), now_ns)
    for seconds, watts in steps:
        now_ns += round(seconds * 1e9)
        joules += seconds * watts
        reached = total.update(EnergyReading("cpu", "x", joules % RANGE, RANGE), now_ns)
        assert reached == pytest.approx(joules - begin, abs=1e-3)


def test_energy_of_a_pause_in_which_the_counter_may_wrap_twice_is_left_out():
    total = EnergyTotal()
    total.update(EnergyReading("cpu", "x", 10.0, 1000.0), 0)
    assert total.update(EnergyReading("cpu", "x", 20.0, 1000.0), 2 * 10**9) is None
    assert total.update(EnergyReading("cpu", "x", 25.0, 1000.0), 2 * 10**9 + 10**8) == 5


IPMITOOL = """
    Instantaneous power reading:                   220 Watts
    Minimum during sampling period:                 18 Watts
    Power reading state is:                   activated
"""


@pytest.mark.parametrize(
    ("text", "watts"),
    [
        (IPMITOOL, 220),
        ("Current Power                        : 164 Watts\nMinimum Power over : 4 Watts\n", 164),
        ("DCMI request failed because: Invalid command (c1)\n", None),
        ("", None),
    ],
)
def test_the_power_in_the_output_of_a_program(text, watts):
    assert parse_power(text) == watts


def test_the_local_controller_gives_the_power(tmp_path):
    program = tmp_path / "ipmitool"
    program.write_text(f"#!/bin/sh\ntest \"$*\" = 'dcmi power reading' || exit 1\ncat <<'X'\n{IPMITOOL}X\n")
    program.chmod(0o755)
    programs = {"ipmitool": str(program)}
    assert IpmiPower(str(tmp_path), programs.get).read() is None  # no device of IPMI
    (tmp_path / "ipmi0").touch()
    assert IpmiPower(str(tmp_path), programs.get).read() == 220
    assert IpmiPower(str(tmp_path), lambda _name: None).find_command() is None


def test_a_power_meter_of_the_kernel(tmp_path):
    assert read_sensor_power(sys_root=f"{tmp_path}/sys") is None
    plant(
        tmp_path,
        {
            "sys/class/hwmon/hwmon0/name": "coretemp\n",
            "sys/class/hwmon/hwmon0/power1_input": "5000000\n",
            "sys/class/hwmon/hwmon3/name": "power_meter\n",
            "sys/class/hwmon/hwmon3/power1_average": "310000000\n",
        },
    )
    assert read_sensor_power(sys_root=f"{tmp_path}/sys") == 310
    assert read_sensor_power("cpu", f"{tmp_path}/sys") is None


@pytest.mark.parametrize("folder", ["", "device/"])
@pytest.mark.parametrize(("modules", "node"), [([], None), ([700, 650], 1350)])
def test_meters_of_sockets_are_no_meters_of_the_machine(tmp_path, folder, modules, node):
    meters = [*(("Module", watts) for watts in modules), ("Grace", 200), ("Grace", 100), ("CPU", 90), ("SysIO", 9)]
    for at, (part, watts) in enumerate(meters):
        chip = f"sys/class/hwmon/hwmon{at}/{folder}"
        plant(
            tmp_path,
            {
                f"{chip}name": "power_meter\n",
                f"{chip}power1_average": f"{watts}000000\n",
                f"{chip}power1_oem_info": f"{part} Power Socket {at}\n",
            },
        )
    assert read_sensor_power(sys_root=f"{tmp_path}/sys") == node
    assert read_sensor_power("cpu", f"{tmp_path}/sys") == 300
    plant(
        tmp_path, {"sys/class/hwmon/hwmon9/name": "power_meter\n", "sys/class/hwmon/hwmon9/power1_input": "5000000\n"}
    )
    assert read_sensor_power(sys_root=f"{tmp_path}/sys") == 5


def test_a_meter_of_processors_gives_their_energy_and_no_power_of_the_node():
    clock = Clock()
    poller = PowerPoller("hwmon", lambda: 250.0, clock, "cpu")
    collector = PowerCollector(PLACE, [poller])
    for _ in range(2):
        clock.ns += 60 * 10**9
        collector.collect(NOW_MS)
        assert poller.wait(SECONDS)
    samples = collector.collect(NOW_MS)
    labels = (("kind", "cpu"), ("source", "hwmon"))
    assert [(one.series.metric, one.series.labels, one.value) for one in samples] == [("node.energy", labels, 15_000)]


class Clock:
    def __init__(self):
        self.ns = 0

    def __call__(self):
        return self.ns


def polled(poller, clock, seconds):
    clock.ns += round(seconds * 1e9)
    poller.poll()
    assert poller.wait(SECONDS)
    return poller.poll()


@given(
    st.lists(
        st.tuples(
            st.floats(60, 600), st.one_of(st.sampled_from([None, 0.0, -1.0, math.nan, math.inf]), st.floats(1, 5000))
        ),
        max_size=12,
    )
)
def test_power_adds_up_by_trapezoids_without_long_pauses(readings):
    clock, watts = Clock(), [0.0]
    poller = PowerPoller("ipmi", lambda: watts[0], clock)
    expected, last = 0.0, None
    for seconds, power in readings:
        watts[0] = power
        given_now = polled(poller, clock, seconds)
        if power is None or not 0 < power < math.inf:
            assert given_now is None
            continue
        if last is not None and clock.ns - last[1] <= 300 * 10**9:
            expected += (last[0] + power) / 2 * (clock.ns - last[1]) / 1e9
        last = power, clock.ns
        assert given_now == (power, pytest.approx(expected, rel=1e-6, abs=1e-3))


def test_a_failing_power_source_has_no_samples_and_a_hanging_one_does_not_block_the_collector(caplog):
    def failing():
        raise OSError("no such device")

    clock = Clock()
    poller = PowerPoller("ipmi", failing, clock)
    assert polled(poller, clock, 0) is None
    assert polled(poller, clock, 60) is None
    assert sum("no such device" in one.message for one in caplog.records) == 1
    release = threading.Event()
    hanging = PowerPoller("redfish", lambda: release.wait(SECONDS) and 5.0, clock)
    collector = PowerCollector(PLACE, [hanging])
    assert collector.collect(NOW_MS) == []
    assert collector.collect(NOW_MS) == []
    release.set()
    assert hanging.wait(SECONDS)
    assert {one.series.metric: one.value for one in collector.collect(NOW_MS)} == {"node.power": 5, "node.energy": 0}


ANSWERS = {
    "/redfish/v1/Chassis": json.dumps(
        {
            "Members": [{"@odata.id": f"/redfish/v1/Chassis/{one}"} for one in ("1/", "2")]
            + [{"@odata.id": "@elsewhere/1"}]
        }
    ),
    "/redfish/v1/Chassis/1/Power": '{"PowerControl": [{"PowerConsumedWatts": 429, "Name": "x"}]}',
    "/redfish/v1/Chassis/3/Power": '{"PowerControl": [{"PowerConsumedWatts": null}]}',
    "/redfish/v1/Chassis/4/Power": "{",
    "/redfish/v1/Chassis/2/EnvironmentMetrics": '{"PowerWatts": {"Reading": 312.5, "DataSourceUri": "/x"}}',
    "/redfish/v1/Chassis/5/EnvironmentMetrics": '{"PowerWatts": [1], "EnergykWh": {"Reading": 7}}',
}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ANSWERS.get(self.path, "").encode()
        allowed = self.headers.get("Authorization") == "Basic dTpwOnc="
        self.send_response((200 if body else 404) if allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


@pytest.fixture(scope="module")
def controller(tmp_path_factory):
    """Yield the address of a controller without its scheme, and the file of its certificate authority."""
    made = make(tmp_path_factory.mktemp("redfish"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}", made.ca
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_power_that_a_controller_gives(controller):
    host, ca = controller

    def read(text):
        return RedfishPower(RedfishSettings(f"https://{text}", ca)).read()

    assert read(f"u:p%3Aw@{host}") == 429  # the second chassis has no power control
    assert read(f"u:p%3Aw@{host}/redfish/v1/Chassis/1") == 429
    assert read(f"u:p%3Aw@{host}/redfish/v1/Chassis/2") == 312.5
    assert read(f"u:p%3Aw@{host}/redfish/v1/Chassis/3") is None
    assert read(f"u:p%3Aw@{host}/redfish/v1/Chassis/5") is None
    with pytest.raises(UnavailableError, match="damaged"):
        read(f"u:p%3Aw@{host}/redfish/v1/Chassis/4")
    with pytest.raises(UnavailableError, match="answers 401") as refused:
        read(f"u:wrong@{host}")
    assert "wrong" not in str(refused.value)
    with pytest.raises(UnavailableError, match="certificate"):
        RedfishPower(RedfishSettings(f"https://u:p@{host}")).read()


@pytest.mark.parametrize("url", ["http://bmc", "bmc", "https://", "ftp://bmc", "https://u:p@"])
def test_an_address_that_is_not_https_is_refused(url):
    with pytest.raises(InvalidRequestError):
        RedfishPower(RedfishSettings(url))


@pytest.mark.parametrize("url", ["https://u:s3cret#x@bmc", "https://u:s3cret@bmc:99999", "https://u:s3cret\u20ac@bmc"])
def test_a_password_is_in_no_message(url):
    with pytest.raises(InvalidRequestError) as refused:
        RedfishPower(RedfishSettings(url))
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))
    assert "s3cret" not in repr(RedfishSettings(url))


def test_a_source_is_read_after_an_answer_of_another_form(caplog):
    answers = iter([TypeError("'int' object is not iterable"), 5.0])

    def read():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    clock = Clock()
    poller = PowerPoller("redfish", read, clock)
    assert polled(poller, clock, 0) is None
    assert "not iterable" in caplog.text
    assert polled(poller, clock, 60) == (5.0, 0.0)


def test_power_at_rest_is_remembered_for_a_week(tmp_path):
    idle = IdlePower(tmp_path / "idle.json")
    assert idle.find_watts("cpu") is None
    for turn in range(100):
        idle.add("cpu", 100 + turn, NOW_MS + turn * 10_000)
    idle.add("cpu", -5, NOW_MS)
    assert idle.find_watts("cpu") == 104
    idle.add("cpu", 300, NOW_MS + 1_300_000)  # later than the last write to the file
    assert IdlePower(tmp_path / "idle.json").find_watts("cpu") == 105
    for turn in range(100):
        idle.add("cpu", 200, NOW_MS + 8 * 86_400_000 + turn)
    assert idle.find_watts("cpu") == 200
