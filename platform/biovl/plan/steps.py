"""Cost of each job: one function per job, from data sizes and assumptions to hours and dollars.

Hours of a job are wall-clock hours. vCPU-hours and GPU-hours count only time in use, but dollars
are for whole machines, including idle time.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.core.limits import HEADROOM
from biovl.harvest.config import RECIPES
from biovl.harvest.pmc.settings import Config
from biovl.plan.config import Fleet, HarvestPlan, PlanConfig
from biovl.plan.pretraining import TrainingCost, accelerator_named, cores, training
from biovl.plan.tables import prices

MS_PER_HOUR = 3.6e6
HOURS_PER_MONTH = 730.0
READ_REQUESTS_PER_PAIR = 1 / 8
"""Requests per pair in training: pairs stored next to each other share one (``data.run_pairs``)."""

PART_GB = 0.064
"""Data written per request, GB."""

CHECKPOINT_BYTES = 12
"""Bytes per parameter in a checkpoint: the value and the two moments of Adam, float32."""

INDEX_BYTES_PER_DIMENSION = 3
"""Bytes per vector and dimension: 16 bits in the vectors file, and 8 bits in the index."""
ROW_BYTES, THUMBNAIL_BYTES = 1_500, 9_000
"""Size of a figure in an index, in bytes: its row with filters and words (an estimate), and its
thumbnail (8,854 measured on 236 figures)."""

BUSY = 0.5
"""Target utilisation of serving vCPUs; at higher load searches queue."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Estimated time, resources and cost of a job."""

    job: str
    machines: str = ""
    hours: float = 0.0
    """Wall-clock hours of the job."""

    gpu_hours: float = 0.0
    """Hours of GPUs that compute, without lost time."""
    cpu_hours: float = 0.0
    """Hours of vCPUs that compute or wait for requests, without lost time."""

    compute_dollars: float = 0.0
    helper_dollars: float = 0.0
    """Part of these that is paid for machines that decode images for the GPUs of others."""
    request_dollars: float = 0.0
    storage_gb: Mapping[str, float] = field(default_factory=dict)
    """Size of the output, by folder."""

    read_gb: float = 0.0
    written_gb: float = 0.0
    source_requests: float = 0.0
    """Requests to the open-data bucket; its owner pays for these and for the transfer."""

    get_requests: float = 0.0
    put_requests: float = 0.0
    """Requests to your own buckets."""

    bound_by: str = ""
    """The resource that limits the speed."""

    @property
    def dollars(self) -> float:
        """Cost of machines and requests, in US dollars."""
        return self.compute_dollars + self.request_dollars


@dataclass(frozen=True, kw_only=True)
class DataSizes:
    """Number of articles, figures and pairs that the jobs process."""

    articles: float
    figures: float
    """Usable figures, with an image and a caption."""

    pairs: float
    train_pairs: int


class Planner:
    """Computes the costs of all jobs of a plan for one set of assumptions."""

    def __init__(self, config: PlanConfig, assumed: Mapping[str, float]) -> None:
        self.config, self.assumed = config, assumed
        corpus = config.corpus
        figures = corpus.articles * assumed["figures_per_article"]
        pairs = figures * assumed["kept_share"]
        train = config.pretrain.pairs or int(pairs * corpus.train_share)
        self.sizes = DataSizes(
            articles=corpus.articles, figures=figures, pairs=pairs, train_pairs=train
        )

    def costs(self) -> list[Cost]:
        """Return the costs of the jobs of the plan, in order."""
        steps: dict[str, Callable[[], Cost]] = {
            "harvest": self.harvest,
            "annotate": self.annotate,
            "assemble": self.assemble,
            "pretrain": self.pretrain,
            "index": self.index,
            "serve": self.serve,
        }
        return [steps[job]() for job in steps if job in self.config.jobs]

    def harvest(self) -> Cost:
        """Return the cost of reading every article and the images of its figures."""
        a, sizes = self.assumed, self.sizes
        work_ms = sizes.articles * a["read_article_ms"] + sizes.figures * a["inspect_image_ms"]
        # The XML, each image, and a listing; a package of your own is one object.
        is_own = harvest_source(self.config.harvest) is None
        requests = sizes.articles if is_own else 2 * sizes.articles + sizes.figures
        wait_ms = requests * a["s3_wait_ms"]
        images_gb = sizes.figures * a["image_kb"] / 1e6
        storage = {"figures/": images_gb + sizes.articles * a["article_kb"] / 1e6}
        work, wait = self._vcpu_hours(work_ms), wait_ms / MS_PER_HOUR
        per_s, limited_by = self._requests_per_s()
        least = requests / per_s / 3600
        # More machines than this rate keeps busy would be idle.
        busy = math.ceil((work + wait) / least / self.config.cpu.machine.vcpus)
        fleet = replace(self.config.cpu, count=min(max(busy, 1), self.config.cpu.count))
        return self._run(
            Cost(
                job="harvest",
                read_gb=images_gb + sizes.articles * a["xml_kb"] / 1e6,
                storage_gb=storage,
                source_requests=0 if is_own else requests,
                get_requests=requests if is_own else 0,
                put_requests=sum(storage.values()) / PART_GB,
                bound_by="waiting for objects" if wait > work else "CPUs that read and look",
            ),
            fleet,
            cpu_hours=work + wait,
            least=(least, limited_by),
        )

    def _requests_per_s(self) -> tuple[float, str]:
        """Return the requests per second of all workers together, and what limits them."""
        a = self.assumed
        source = harvest_source(self.config.harvest)
        bucket = "bucket" if source is None else "open-data bucket"
        rates = [(a["bucket_requests_s"], f"what the {bucket} answers")]
        if source is not None:
            rates += [
                (
                    HEADROOM * source.requests_per_s,
                    f"source.requests_per_s={source.requests_per_s:g}",
                ),
                (
                    source.concurrent / (a["s3_wait_ms"] / 1e3),
                    f"source.concurrent={source.concurrent}",
                ),
                (a["limiter_requests_s"], "the limiter of all workers"),
            ]
        return min(rates)

    def annotate(self) -> Cost:
        """Return the cost of applying an image model to every figure."""
        a, sizes = self.assumed, self.sizes
        storage = {"columns/": sizes.figures * 1_024 * 2 / 1e9}
        return self._run(
            Cost(
                job="annotate",
                storage_gb=storage,
                read_gb=sizes.figures * a["image_kb"] / 1e6,
                get_requests=sizes.figures * a["image_kb"] / 1e6 / PART_GB,
                put_requests=sum(storage.values()) / PART_GB,
            ),
            self.config.embed,
            cpu_hours=self._vcpu_hours(sizes.figures * a["decode_image_ms"]),
            gpu_flops=sizes.figures * a["annotate_gflop"] * 1e9,
        )

    def assemble(self) -> Cost:
        """Return the cost of resizing images, and writing pairs to shards in shuffled order."""
        a, sizes = self.assumed, self.sizes
        size = sizes.pairs * (a["stored_image_kb"] + a["pair_kb"]) / 1e6
        return self._run(
            Cost(
                job="assemble",
                storage_gb={"corpus/": size},
                read_gb=sizes.figures * a["image_kb"] / 1e6 + size,
                # Each encoded pair is copied once to its shard.
                get_requests=sizes.figures * a["image_kb"] / 1e6 / PART_GB + sizes.pairs,
                put_requests=2 * size / PART_GB,
                bound_by="CPUs that shrink images",
            ),
            self.config.cpu,
            cpu_hours=self._vcpu_hours(sizes.pairs * a["assemble_pair_ms"]),
        )

    def pretrain(self) -> Cost:
        """Return the cost of training, including CPUs that decode images on other machines.

        Raises:
            ConfigError: If the GPUs have too little memory even for one pair at a time.
        """
        a, fleet = self.assumed, self.config.train
        run = self.training()
        gpus = fleet.trained_on
        # The share of Ray is in this number.
        cpu_hours = run.pairs * a["prepare_pair_ms"] / MS_PER_HOUR / a["vcpu_speed"]
        available = fleet.count * fleet.machine.vcpus
        hours, helpers, bound_by = run.hours, 0, "GPUs" if gpus else "CPUs that train"
        if not math.isfinite(hours):
            raise ConfigError(
                f"{self.config.pretrain.recipe} does not fit into the memory of "
                f"{run.forecast.accelerator.name}, not even with one pair at a time: choose "
                "another train.instance, or pretrain.changes.step.checkpoint_activations=true"
            )
        if gpus:
            missing = cpu_hours / hours - available
            helpers = max(0, math.ceil(missing / self.config.cpu.machine.vcpus))
        else:
            hours += cpu_hours / available
        gb_per_pair = (a["stored_image_kb"] + a["pair_kb"]) / 1e6
        storage = {
            "checkpoints": run.parameters * CHECKPOINT_BYTES * run.checkpoints / 1e9,
            "model/": run.parameters * 4 / 1e9,
        }
        paid = self._paid(hours)
        cost = Cost(
            job="pretrain",
            machines=_machines(fleet, used=gpus),
            hours=paid,
            gpu_hours=hours * gpus,
            cpu_hours=cpu_hours if gpus else hours * available,
            compute_dollars=paid * fleet.count * self._price(fleet),
            storage_gb=storage,
            read_gb=run.pairs * gb_per_pair,
            get_requests=run.pairs * READ_REQUESTS_PER_PAIR,
            bound_by=bound_by,
        )
        if helpers:
            fleet_of_helpers = replace(self.config.cpu, count=helpers)
            dollars = paid * helpers * self._price(fleet_of_helpers)
            cost = replace(
                cost,
                machines=f"{cost.machines} + {_machines(fleet_of_helpers)}",
                compute_dollars=cost.compute_dollars + dollars,
                helper_dollars=dollars,
            )
        return self._with_requests(cost)

    def training(self) -> TrainingCost:
        """Return the training cost on the machines of the plan."""
        a, fleet = self.assumed, self.config.train
        machine = fleet.machine
        if machine.accelerator is None:
            vcpus = machine.vcpus * fleet.count
            accelerator = cores(vcpus, a["cpu_gflops"] * a["vcpu_speed"], machine.memory_gib)
            workers, utilisation = 1, 1.0
        else:
            accelerator, utilisation = accelerator_named(machine.accelerator), a["utilisation"]
            workers = fleet.trained_on
        return training(
            self.config.pretrain,
            pairs=self.sizes.train_pairs,
            caption_tokens=a["caption_tokens"],
            accelerator=accelerator,
            workers=workers,
            utilisation=utilisation,
        )

    def index(self) -> Cost:
        """Return the cost of embedding every pair and building the vector index."""
        a, sizes, run = self.assumed, self.sizes, self.training()
        vector_gb = 2 * sizes.pairs * INDEX_BYTES_PER_DIMENSION * run.embed_dim / 1e9
        size = vector_gb + sizes.pairs * (ROW_BYTES + THUMBNAIL_BYTES) / 1e9
        read_gb = sizes.pairs * (a["stored_image_kb"] + a["pair_kb"]) / 1e6
        # Images in the corpus are already resized and decode faster.
        look_ms = a["decode_image_ms"] * min(1.0, a["stored_image_kb"] / a["image_kb"])
        return self._run(
            Cost(
                job="index",
                storage_gb={"index/": size},
                read_gb=read_gb,
                get_requests=read_gb / PART_GB,
                put_requests=size / PART_GB,
            ),
            self.config.embed,
            cpu_hours=self._vcpu_hours(sizes.pairs * (look_ms + 2 * a["fill_vector_ms"])),
            gpu_flops=sizes.pairs * run.forward_flops,
        )

    def hot_gb(self) -> float:
        """Return the memory needed by a serving machine: codes and ids of both indexes, in GB."""
        return 2 * self.sizes.pairs * (self.training().embed_dim + 8) / 1e9

    def serve(self) -> Cost:
        """Return the cost of serving searches for ``serve.months``."""
        a, plan = self.assumed, self.config.serve
        machine = plan.fleet.machine
        search_s = a["search_cpu_ms"] * self.sizes.pairs / 1e6 / 1e3
        vcpus = plan.queries_per_s * search_s / a["vcpu_speed"] / BUSY
        count = max(plan.fleet.count, math.ceil(vcpus / machine.vcpus))
        fleet = replace(plan.fleet, count=count)
        hours = plan.months * HOURS_PER_MONTH
        return Cost(
            job="serve",
            machines=_machines(fleet),
            hours=hours,
            gpu_hours=hours * count * machine.gpus,
            cpu_hours=hours * count * machine.vcpus,
            compute_dollars=hours * count * self._price(fleet),
            bound_by="searches" if count > plan.fleet.count else "the size of the smallest service",
        )

    def _run(
        self,
        cost: Cost,
        fleet: Fleet,
        *,
        cpu_hours: float,
        gpu_flops: float = 0.0,
        least: tuple[float, str] = (0.0, ""),
    ) -> Cost:
        """Return a job with the hours and dollars of its machines.

        Args:
            cost: Other costs of the job.
            fleet: Machines of the job.
            cpu_hours: vCPU-hours of work.
            gpu_flops: FLOPs on GPUs, in parallel with the vCPUs; on the vCPUs without GPUs.
            least: Minimum hours for any number of machines, and the reason.
        """
        machine = fleet.machine
        vcpus, bound_by = fleet.count * machine.vcpus, cost.bound_by or "CPUs that decode"
        gpu_hours, gpus = 0.0, fleet.count * machine.gpus
        if gpu_flops and machine.accelerator is not None:
            accelerator = accelerator_named(machine.accelerator)
            peak = accelerator.peak_flops("bf16") or accelerator.peak_flops("fp32") or 0.0
            gpu_hours = gpu_flops / (peak * self.assumed["inference_utilisation"]) / 3600
        elif gpu_flops:
            gflops = self.assumed["cpu_gflops"]
            cpu_hours += self._vcpu_hours(gpu_flops / (gflops * 1e9) * 1e3)
        hours = cpu_hours / vcpus
        if gpus and gpu_hours / gpus > hours:
            hours, bound_by = gpu_hours / gpus, "GPUs"
        if least[0] > hours:
            hours, bound_by = least
        paid = self._paid(hours)
        return self._with_requests(
            replace(
                cost,
                machines=_machines(fleet),
                hours=paid,
                gpu_hours=gpu_hours,
                cpu_hours=cpu_hours,
                compute_dollars=paid * fleet.count * self._price(fleet),
                written_gb=sum(cost.storage_gb.values()),
                bound_by=bound_by,
            )
        )

    def _with_requests(self, cost: Cost) -> Cost:
        if self.config.cpu.machine.on_demand == 0:
            return cost
        s3 = prices().s3
        dollars = (cost.get_requests * s3.get_1000 + cost.put_requests * s3.put_1000) / 1e3
        return replace(cost, request_dollars=dollars * self.assumed["price_level"])

    def _vcpu_hours(self, core_ms: float) -> float:
        a = self.assumed
        return core_ms / MS_PER_HOUR / a["vcpu_speed"] / a["ray_efficiency"]

    def _paid(self, hours: float) -> float:
        return hours * self.assumed["lost_time"] + self.assumed["start_minutes"] / 60

    def _price(self, fleet: Fleet) -> float:
        """Return the price of a machine, dollars per hour."""
        machine, level = fleet.machine, self.assumed["price_level"]
        if fleet.buy == "block":
            return level * (machine.block or 0.0)
        if fleet.buy == "spot":
            return level * (machine.on_demand or 0.0) * (1 - self.assumed["spot_discount"])
        return level * (machine.on_demand or 0.0)


def harvest_source(plan: HarvestPlan) -> Config | None:
    """Return the settings of the open-data source; None if a harvest reads another source.

    Raises:
        ConfigError: If a recipe or setting does not exist.
    """
    if plan.recipe not in RECIPES:
        raise ConfigError(f"harvest.recipe: choose from {', '.join(RECIPES)}, got {plan.recipe!r}")
    changes = {"out": "out", **configs.flat(plan.changes, keep_empty=True)}
    source = configs.override(RECIPES[plan.recipe](), changes, name="harvest.changes").source
    if source.name != "pmc_open_data":
        return None
    return configs.build(Config, source.settings, name="harvest.changes.source")


def storage_dollars(config: PlanConfig, costs: list[Cost], price_level: float) -> float:
    """Return the cost in dollars of storing all published folders for ``months_kept``.

    Checkpoints are deleted after a run.
    """
    if config.cpu.machine.on_demand == 0:
        return 0.0
    kept = sum(
        size for cost in costs for name, size in cost.storage_gb.items() if name != "checkpoints"
    )
    return kept * prices().s3.gb_month * config.months_kept * price_level


def _machines(fleet: Fleet, used: int | None = None) -> str:
    text = f"{fleet.count} x {fleet.instance}"
    available = fleet.count * fleet.machine.gpus
    if used is not None and used < available:
        text += f" ({used} of {available} GPUs)"
    return text if fleet.buy == "on_demand" else f"{text} {fleet.buy}"
