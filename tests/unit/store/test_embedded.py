"""Tests of the store contract on embedded chDB."""

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError
from tests.store_contract.samples import FOREVER, batch_of
from tests.store_contract.store import StoreTests
from tests.store_contract.system_logs import system_line

from jobmeter.errors import LimitExceededError, UnavailableError
from jobmeter.model.batch import SeriesKeys
from jobmeter.model.log_query import parse_log_query
from jobmeter.model.series import NamePart
from jobmeter.model.time import DAY
from jobmeter.store.base import LogSelector, ReadBudget, SeriesSelector, Store
from jobmeter.store.clickhouse import maintenance
from jobmeter.store.clickhouse.journal import JournalLimits


class TestEmbedded(StoreTests):
    @pytest.fixture
    def store(self, chdb_store: Store) -> Store:
        return chdb_store

    def test_what_is_new_is_called_unwritten_and_what_an_earlier_process_wrote_is_not(self, chdb_store, slot):
        one, two = slot.gauge("worker-0"), slot.gauge("worker-1")
        keys = SeriesKeys.from_series([one, two])
        assert chdb_store.lacks_descriptor(keys).tolist() == [True, True]
        chdb_store.append_all((batch_of({(one, slot.start): 1.0}),), FOREVER)
        assert chdb_store.lacks_descriptor(keys).tolist() == [False, True]
        # A new process has an empty cache, and reads the engine.
        chdb_store.catalog.forget()
        assert chdb_store.lacks_descriptor(keys).tolist() == [False, True]

    def test_samples_of_a_new_series_are_stored_while_the_list_of_all_series_cannot_be_read(
        self, chdb_store, slot, monkeypatch
    ):
        def fail():
            reads.append(1)
            raise UnavailableError("the engine is out of memory")

        reads: list[int] = []
        chdb_store.catalog.forget()
        monkeypatch.setattr(chdb_store.catalog, "_read_all", fail)
        one, other = slot.gauge("worker-0"), slot.gauge("worker-1")
        chdb_store.append_all((batch_of({(one, slot.start): 1.0}),), FOREVER)
        assert reads
        assert chdb_store.find(SeriesSelector(jobs=(one.job_key,))) == [one]
        reads.clear()
        # The log of a node does not need it, and may wait long for the node.
        missing = chdb_store.catalog.find_missing([batch_of({(other, slot.start): 1.0})], FOREVER, seeks_new=False)
        assert len(missing.new) == 0
        assert not reads

    def test_samples_after_a_deletion_that_failed_halfway_have_their_series(self, chdb_store, slot, monkeypatch):
        one = slot.gauge("worker-0")
        chdb_store.append_all((batch_of({(one, slot.start): 1.0}),), FOREVER)
        monkeypatch.setattr(maintenance, "_DATA", (*maintenance._DATA, "nowhere"))
        with pytest.raises(ClickHouseError):
            chdb_store.delete_job(one.job_key)
        chdb_store.append_all((batch_of({(one, slot.start): 2.0}),), FOREVER)
        chdb_store.commit_log.flush()
        assert chdb_store.find(SeriesSelector(jobs=(one.job_key,))) == [one]

    def test_a_series_is_found_before_its_first_samples_are_in_the_engine(self, chdb_store, slot, monkeypatch):
        monkeypatch.setattr(chdb_store.commit_log, "_limits", JournalLimits(flush_seconds=10**6))
        chdb_store.commit_log.flush()
        one, other = slot.gauge("worker-0"), slot.gauge("worker-1")
        chdb_store.append_all((batch_of({(one, slot.start): 1.0, (one, slot.start + DAY): 2.0}),), FOREVER)
        assert chdb_store.commit_log.get_pending().list_descriptors()
        selectors = [
            SeriesSelector(jobs=(one.job_key,)),
            SeriesSelector(jobs=(one.job_key,), metrics=frozenset({one.metric}), projects=frozenset({one.project})),
            SeriesSelector(nodes=((one.cluster, one.node),), jobs=(one.job_key,), since=slot.start + DAY),
        ]
        others = [
            SeriesSelector(jobs=(other.job_key + 1,)),
            SeriesSelector(jobs=(one.job_key,), metrics=frozenset({"cpu.limit"})),
            SeriesSelector(jobs=(one.job_key,), projects=frozenset({"elsewhere"})),
            SeriesSelector(jobs=(one.job_key,), since=slot.start + 2 * DAY),
        ]
        for _ in ("waiting", "inserted"):
            assert [chdb_store.find(selector) for selector in selectors] == [[one]] * 3
            assert [chdb_store.find(selector) for selector in others] == [[]] * 4
            assert chdb_store.list_names(SeriesSelector(jobs=(one.job_key,)), NamePart.REPLICA) == ["worker-0"]
            assert chdb_store.list_names(SeriesSelector(jobs=(one.job_key,)), NamePart.REPLICA, "x") == []
            with pytest.raises(LimitExceededError):
                chdb_store.find(SeriesSelector(jobs=(one.job_key,), limit=0))
            chdb_store.commit_log.flush()
            assert not chdb_store.commit_log.get_pending().list_descriptors()

    def test_the_index_of_words_answers_patterns_too(self, chdb_store, slot):
        texts = ["step loss"] * 40_000
        texts[20_000] = "NVRM: Xid 79, GPU has fallen off the bus: errorful"
        chdb_store.logs.append([system_line(slot, at, text) for at, text in enumerate(texts)], FOREVER)

        def found(text):
            query = parse_log_query(text)
            selector = LogSelector(node=slot.job, projects=frozenset({"default"}), query=query)
            return [line.text for line in chdb_store.logs.read(selector, ReadBudget(rows=20_000)).lines]

        for text in ("xid", "err*", "erro?ful", "*rful", "fal* or oom", "gpu-has-f* severity!=3", "not step fallen"):
            assert found(text) == [texts[20_000]], text
        with pytest.raises(LimitExceededError, match="add a word that few lines have"):
            found("s*")
