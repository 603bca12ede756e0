from pathlib import Path

import msgspec

from jobmeter.dialects.eflo import EFLO
from jobmeter.model.log import LogLine
from jobmeter.model.task import DiagnosticTask, NewTask, TaskFilter, TaskPage
from jobmeter.query.log_pages import FoundLines, LogSearch
from jobmeter.testing.dialect import DialectTests


class TestEflo(DialectTests):
    cases = Path(__file__).parent / "cases"

    def dialect(self):
        return EFLO

    def result_of(self, given, question):
        if isinstance(question, LogSearch):
            return FoundLines(msgspec.convert(given["lines"], list[LogLine]), given.get("token", ""))
        if isinstance(question, TaskFilter):
            return msgspec.convert(given, TaskPage)
        if isinstance(question, NewTask):
            return msgspec.convert(given, DiagnosticTask)
        return super().result_of(given, question)
