import re

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.model.series import check_job_id, check_series
from jobmeter.wire.mlflow.names import (
    APP,
    MAX_RUN_ID,
    convert_key,
    escape,
    make_experiment_id,
    parse_experiment_id,
    parse_run,
    run_id,
)
from jobmeter.wire.mlflow.runs import Run
from jobmeter.wire.mlflow.values import make_series

RUN = Run(id="r1", project="lab", job="r1", experiment="0", status="RUNNING", start=1_795_188_836_000)
KEYS = st.text(st.characters(categories=("L", "N"), include_characters="_-./ :"), min_size=1, max_size=250)
JOB_IDS = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=60)


@given(KEYS)
def test_the_name_of_a_metric_survives_the_round_trip(key):
    metric, label = convert_key(key)
    assert (label or metric.removeprefix(APP)) == key
    check_series(make_series(RUN, key))


@given(st.lists(KEYS, min_size=2, max_size=2, unique=True))
def test_different_names_are_different_series(keys):
    assert make_series(RUN, keys[0]) != make_series(RUN, keys[1])


@given(st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=500))
def test_the_id_of_an_experiment_decodes_to_its_name(name):
    try:
        found = make_experiment_id(name)
    except InvalidRequestError:
        assert not name.strip() or not name.isprintable()
    else:
        assert parse_experiment_id(found) == name


@given(st.text(max_size=40))
def test_another_text_is_no_id_of_an_experiment(text):
    name = parse_experiment_id(text)
    assert name is None or make_experiment_id(name) == text


@given(JOB_IDS, st.text("0123456789abcdef", min_size=32, max_size=32))
def test_the_id_of_a_run_names_its_job(job, unique):
    try:
        check_job_id(job)
    except InvalidRequestError:
        return
    run = run_id(job, unique)
    assert re.fullmatch(r"[a-zA-Z0-9][\w\-]{0,255}", run), "the client refuses any other id"
    assert len(run) <= MAX_RUN_ID
    fits = len(escape(job)) <= 240
    assert parse_run(run) == ((job, True) if fits else (unique, False))
