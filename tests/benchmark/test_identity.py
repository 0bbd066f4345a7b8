"""What makes two runs of a benchmark the same."""

import pyarrow as pa

from biovl.benchmark import benchmarks, identity, selection
from biovl.benchmark.config import BenchmarkConfig
from biovl.core import config as configs
from tests.benchmark.memory import MemoryImages


def settings(**changes: object) -> dict:
    values = {"out": "o", "model": "m", "tasks.p.name": "linear_probe", "data": "d", **changes}
    config = configs.build(BenchmarkConfig, configs.nested(values))
    return identity.settings(config, benchmarks.resolve_tasks(config)[0])


def test_what_is_typed_is_what_stands_in_a_file() -> None:
    typed = settings(**{"tasks.p.resamples": "8", "tasks.p.seeds": ["0", "1"]})
    assert typed == settings(**{"tasks.p.resamples": 8, "tasks.p.seeds": [0, 1]})
    assert typed != settings(**{"tasks.p.resamples": 9, "tasks.p.seeds": [0, 1]})


def test_a_setting_that_is_the_default_is_no_other() -> None:
    assert settings() == settings(**{"tasks.p.fractions": ["0.01", "0.1", "1"]})
    typed = {"name": "long_captions", "path": "f", "articles": "5"}
    said = {"name": "long_captions", "path": "f", "articles": 5}
    asked = {"tasks.p.name": "retrieval"}
    assert settings(**asked, data=typed) == settings(**asked, data=said)


def test_a_licence_that_was_corrected_is_other_data() -> None:
    def known(name: str, groups: list[str]) -> str:
        data = selection.pairs(
            name="d",
            images=MemoryImages((b"",) * 2, "images"),
            texts=["a", "b"],
            ids=["0", "1"],
            about=pa.table({name: groups}),
        )
        values = {"out": "o", "data": "d", "model": "m", "tasks.retrieval.name": "retrieval"}
        config = configs.build(BenchmarkConfig, configs.nested(values))
        (own,) = identity.inputs(config, {}, {"retrieval": data})
        return own.fingerprint

    same = known("license_group", ["other", "other"])
    assert same == known("license_group", ["other", "other"])
    assert same != known("license_group", ["other", "commercial"])
    assert same != known("patient", ["other", "other"])


def test_where_it_is_published_and_who_works_is_no_difference() -> None:
    assert settings() == settings(out="elsewhere", cache="c", **{"workers.count": 4})
