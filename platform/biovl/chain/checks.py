"""Checks of the steps of a chain before the first one starts.

A job checks its settings and inputs when it starts. For the last job of a chain that may be days
later. Here each step is checked as far as its inputs exist already; the properties of inputs that
earlier steps will publish are taken from the configurations of those steps. A check that fails
raises the error of the job: ``ConfigError``, ``ArtifactError`` or ``SourceError``.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow.fs as pafs

from biovl.annotate import selection
from biovl.annotate.config import AnnotateConfig
from biovl.assemble import job as assembling
from biovl.assemble import pairs, rules
from biovl.assemble.config import AssembleConfig
from biovl.assemble.steps import DERIVED
from biovl.benchmark import benchmarks, data, encoders
from biovl.benchmark.config import BenchmarkConfig
from biovl.concepts import resolve_job
from biovl.concepts.resolve_config import ResolveConfig
from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.artifacts import read_manifest, refuse_overlap
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.filesystems import open_location, translate_storage_errors, without_credentials
from biovl.core.folders import Folder
from biovl.core.tables import KINDS, open_table
from biovl.harvest import job as harvesting
from biovl.harvest.config import HarvestConfig
from biovl.index.config import IndexConfig
from biovl.index.vectors import check_factory
from biovl.models.weight_files import TOWER, check_existence
from biovl.pretrain.checks import check_run, check_settings
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.mixture import read_mixture
from biovl.pretrain.models import describe
from biovl.split.config import NO_DETECTOR, SplitConfig
from biovl.split.detector import config as detection

Made = Mapping[str, Any]
"""Configurations of earlier steps that are not published yet, by output folder."""


def check_harvest(config: HarvestConfig, made: Made) -> None:
    """Check settings and output folder, and that the source has packages."""
    harvesting.check(config)


def check_split(config: SplitConfig, made: Made) -> None:
    """Check that the figures and the detector exist."""
    _published(made, config.figures, "figures")
    if config.detector != NO_DETECTOR:
        _published(made, config.detector, detection.KIND)


def check_annotate(config: AnnotateConfig, made: Made) -> None:
    """Check that the table and the weights exist, and the columns by which rows are selected."""
    if config.table not in made:
        selection.check(config, open_table(config.table))
    if config.weights:
        check_existence(config.weights, TOWER, ask_hub=False)


def check_cluster(config: Any, made: Made) -> None:
    """Check that the table of images exists."""
    if config.table not in made:
        open_table(config.table)


def check_resolve(config: ResolveConfig, made: Made) -> None:
    """Check that the votes and the taxonomy can be read."""
    resolve_job.check(config)


def check_assemble(config: AssembleConfig, made: Made) -> None:
    """Check that every input exists, and that it has the columns used by rules and texts."""
    enabled_rules = rules.make_rules(config.rules)
    for uri in (config.figures, *config.updates):
        _published(made, uri, *KINDS)
    for uri in config.leaks:
        _published(made, uri, "report")
    names = [*pairs.CANDIDATE_SCHEMA.names, *DERIVED]
    for uri in config.columns:
        _published(made, uri, "columns")
    if not config.columns:
        rules.check_columns(enabled_rules, names)
        assembling.check_columns(config, pairs.CANDIDATE_SCHEMA)


def check_pretrain(config: PretrainConfig, made: Made) -> None:
    """Check the settings of the model, weights and trackers, and that they match the corpus."""
    described = describe(config.model, config.optim)
    if made.keys() & set(config.corpora):
        assembled = {
            uri: configs.to_plain(made[uri]) if uri in made else read_manifest(uri, "corpus").config
            for uri in config.corpora
        }
        check_settings(config, assembled, image_px=described.image_size)
    else:
        check_run(config, read_mixture(config), image_px=described.image_size)


def check_index(config: IndexConfig, made: Made) -> None:
    """Check that every input exists, and that the faiss factory string is valid."""
    _published(made, config.corpus, "corpus")
    _published(made, config.previous or "", "index")
    for uri in config.updates:
        _published(made, uri, *KINDS)
    if config.model not in made:
        if not Folder(config.model).exists("open_clip_config.json"):
            raise ArtifactError(f"model: {config.model} has no open_clip_config.json")
    elif config.factory:
        trained: PretrainConfig = made[config.model]
        check_factory(config.factory, describe(trained.model).model_cfg["embed_dim"])


def check_benchmark(config: BenchmarkConfig, made: Made) -> None:
    """Check the settings of the tasks, and that models and data exist."""
    for uri in config.named_models().values():
        if uri not in made:
            encoders.describe(uri)
    for plugin in benchmarks.resolve_tasks(config)[0].values():
        plugins.resolve(benchmarks.TASKS, plugin)
    if not isinstance(config.data, str):
        plugins.resolve(data.KIND, config.data)
    _published(made, config.corpus, "corpus")
    _published(made, config.index, "index")
    for name, place in (("data", config.data), ("data_root", config.data_root)):
        if isinstance(place, str) and place:
            _exists(name, place)
            refuse_overlap(config.out, {name: place})


def _published(made: Made, uri: str, *kinds: str) -> None:
    if uri and uri not in made:
        read_manifest(uri, *kinds)


def _exists(name: str, uri: str) -> None:
    filesystem, path = open_location(uri)
    with translate_storage_errors(without_credentials(uri)):
        kind = filesystem.get_file_info(path).type
    if kind == pafs.FileType.NotFound:
        raise ConfigError(f"{name}: there is nothing at {without_credentials(uri)}")
