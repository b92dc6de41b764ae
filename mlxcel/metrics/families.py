"""Metric families, and the text Prometheus reads (exposition format 0.0.4)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector

from mlxcel.metrics.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TOTAL = "_total"


class _BareCounter(UnknownMetricFamily):
    """A counter whose name does not end in _total, which the library has no word for."""


@dataclass(frozen=True, slots=True)
class _Fixed(Collector):
    families: Sequence[Metric]

    def collect(self) -> Iterator[Metric]:
        yield from self.families


def counter(name: str, about: str, value: float) -> Metric:
    if name.endswith(TOTAL):
        return CounterMetricFamily(name, about, value)
    return _BareCounter(name, about, value)


def gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value)


def labelled(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    """A counter for each value of one label, or a gauge where the name has no _total."""
    kind = CounterMetricFamily if name.endswith(TOTAL) else GaugeMetricFamily
    family = kind(name, about, labels=[label])
    for word, value in values.items():
        family.add_metric([word], value)
    return family


def histogram(name: str, about: str, source: Histogram) -> Metric:
    return HistogramMetricFamily(name, about, source.buckets(), source.sum)


def exposition(families: Iterable[Metric]) -> bytes:
    listed = list(families)
    text = generate_latest(_Fixed(listed))
    for family in listed:
        if isinstance(family, _BareCounter):
            head = f"# TYPE {family.name} ".encode()
            text = text.replace(head + b"untyped\n", head + b"counter\n")
    return text
