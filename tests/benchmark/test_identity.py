"""What makes two runs of a benchmark the same."""

from biovl.benchmark import benchmarks, identity
from biovl.benchmark.config import BenchmarkConfig
from biovl.core import config as configs


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


def test_where_it_is_published_and_who_works_is_no_difference() -> None:
    assert settings() == settings(out="elsewhere", cache="c", **{"workers.count": 4})
