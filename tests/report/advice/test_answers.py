"""Answers to jobs: values, ranges, memory, refusals, and the record for JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.advice.answers import Answer, answer, answer_record, read_calibration
from report.advice.choices import Wish, compare, example_job, hourly_cost, read_words
from report.advice.formulas import FORMULAS
from report.advice.jobs import WORK, Job, UnclearJobError, parse_job
from report.advice.units import UNITS, in_unit, item_time

KINDS = sorted(FORMULAS)
MODELS = {
    "decode": "Llama 3.1 8B", "prompt": "Llama 3.1 8B", "serve": "Llama 3.1 8B", "lora": "Llama 3.1 8B",
    "train": "ResNet-50", "fine-tune": "BERT-base", "classify": "ResNet-50", "detect": "YOLOv8m",
    "embed": "BGE base en v1.5", "transcribe": "Whisper small", "pictures": "SDXL", "tables": "XGBoost",
}  # fmt: skip
SIZES = {"samples": 1000.0, "audio_s": 3600.0, "rows": 1e6, "pictures": 10.0, "tokens_out": 100.0, "users": 8.0}


def make_job(kind: str, hardware: str = "RTX 4090", unit: str = "", **sizes: float) -> Job:
    work = {name: ({**SIZES, **sizes}).get(name) for name in WORK}
    return Job(id="a", kind=kind, model=MODELS[kind], hardware=hardware, work=work, unit=unit)


def make_answer(job: Job) -> Answer:
    given_answer = answer(job, read_calibration())
    assert given_answer.value is not None, given_answer.refused
    return given_answer


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_range_in_each_of_its_units(kind: str) -> None:
    for unit in UNITS[kind]:
        value = make_answer(make_job(kind, unit=unit)).value
        assert value is not None
        assert 0 < value.low <= value.middle <= value.high < math.inf


@pytest.mark.parametrize("kind", KINDS)
def test_units_agree(kind: str) -> None:
    situation = make_answer(make_job(kind)).situation
    assert situation is not None
    for unit in UNITS[kind]:
        assert in_unit(situation, item_time(situation, 3.0, unit), unit) == pytest.approx(3.0)


@given(kind=st.sampled_from(KINDS), factor=st.floats(1.1, 50))
def test_more_bandwidth_and_arithmetic_is_never_slower(kind: str, factor: float) -> None:
    slow = make_answer(make_job(kind, "200 GB/s, 20 TFLOP/s, 80 GB"))
    fast = make_answer(make_job(kind, f"{200 * factor:.3f} GB/s, {20 * factor:.3f} TFLOP/s, 80 GB"))
    assert slow.time is not None
    assert fast.time is not None
    assert fast.time.middle <= slow.time.middle * (1 + 1e-9)


@given(times=st.floats(2, 1e4))
def test_twice_the_samples_take_twice_the_time(times: float) -> None:
    for kind in ("train", "lora", "embed", "classify"):
        once, more = make_answer(make_job(kind, unit="s")), make_answer(make_job(kind, unit="s", samples=1000 * times))
        assert once.value is not None
        assert more.value is not None
        assert more.value.middle == pytest.approx(once.value.middle * times)


@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_beats_physics(kind: str) -> None:
    each = make_answer(make_job(kind))
    assert each.bound is not None
    assert each.value is not None
    is_rate = "/s" in each.unit or each.unit == "x"
    assert each.value.high <= each.bound * (1 + 1e-9) if is_rate else each.value.low >= each.bound * (1 - 1e-9)


def test_memory_is_a_sum_by_part() -> None:
    chat = make_answer(replace(make_job("decode"), precision="fp16"))
    assert chat.parts["weights"] == pytest.approx(2 * 8.03e9, rel=0.01)
    # 32 layers, keys and values of 1,024 numbers in 16 bits each.
    assert chat.parts["keys_and_values"] == pytest.approx((64 + 100) * 32 * 1024 * 2 * 2 * 8, rel=0.01)
    assert chat.required_bytes == pytest.approx(sum(chat.parts.values()))
    tuned = make_answer(replace(make_job("fine-tune"), model="Llama 3.1 8B", precision="bf16", hardware="8x H100"))
    per_parameter = sum(tuned.parts[name] for name in ("weights", "copy", "gradients", "optimiser")) / 8.03e9
    assert per_parameter == pytest.approx(16, rel=0.01)
    lora = make_answer(replace(make_job("lora"), precision="4bit (QLoRA)"))
    assert lora.parts["weights"] == pytest.approx(8.03e9 * 4.5 / 8, rel=0.01)
    assert lora.required_bytes < tuned.required_bytes / 5


@pytest.mark.parametrize(
    ("model", "precision", "hardware", "fits"),
    [
        ("Llama 3.1 8B", "Q4_K_M", "RTX 3060 12GB", "fits"),
        ("Llama 3.1 8B", "fp16", "RTX 4070 12GB", "no"),
        ("Llama 3.1 70B", "Q4_K_M", "RTX 3090", "no"),
        ("Llama 3.1 70B", "Q4_K_M", "2x RTX 3090", "fits"),
        ("Llama 3.1 70B", "Q4_K_M", "M2 Ultra 192GB", "fits"),
        ("Llama 3.1 405B", "Q4_K_M", "A100 80GB", "no"),
        ("Mistral 7B", "Q4_0", "GTX 1080 8GB", "fits"),
    ],
)
def test_what_people_run_fits(model: str, precision: str, hardware: str, fits: str) -> None:
    job = replace(make_job("decode", hardware), kind="fit")
    each = answer(replace(job, model=model, precision=precision), read_calibration())
    assert each.fits == fits
    assert each.value is not None
    assert each.value.middle == (0 if fits == "no" else 1)


def test_memory_in_the_unit_that_is_asked() -> None:
    base = {"id": "m", "kind": "memory", "model": "Llama 3.1 8B", "precision": "bf16", "hardware": "A100 80GB"}
    tuned = answer_record({**base, "work": {"text": "full fine-tuning"}, "unit": "GiB"}, read_calibration())
    run = answer_record({**base, "work": {"text": "inference"}, "unit": "GB"}, read_calibration())
    assert tuned["middle"] == pytest.approx(121, rel=0.1)
    assert run["middle"] == pytest.approx(17, rel=0.1)
    assert run["low"] < run["middle"] < run["high"]


RECORD: dict[str, Any] = {
    "id": "a1", "kind": "decode", "model": "Llama 3.1 8B", "parameters": 8.03e9, "precision": "Q4_K_M",
    "hardware": "RTX 3060 12GB", "count": 1, "threads": None, "software": "llama.cpp", "year": 2025, "unit": "token/s",
    "work": {"tokens_in": 512, "tokens_out": 128, "users": 1, "samples": None, "text": "a short chat"},
}  # fmt: skip


def test_a_record_is_answered_with_its_basis() -> None:
    record = answer_record(RECORD, read_calibration())
    assert (record["id"], record["unit"], record["fits"]) == ("a1", "token/s", "fits")
    assert record["low"] < record["middle"] < record["high"]
    assert record["basis"]["hardware"] == "GeForce RTX 3060 12 GB"
    assert record["basis"]["sources"] >= 20
    json.dumps(record, allow_nan=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "cook"}, "kind must be one of"),
        ({"hardware": "toaster"}, "hardware 'toaster' is not known"),
        ({"hardware": ""}, "hardware is missing"),
        ({"model": "", "parameters": None}, "model is missing"),
        ({"model": "Foo", "parameters": None}, "model 'Foo' is not known"),
        ({"unit": "parsec"}, "unit 'parsec' is not one of"),
        ({"parameters": -1}, "parameters must be a number"),
        ({"parameters": True}, "parameters must be a number"),
        ({"work": "much"}, "work must be an object"),
        ({"work": {"tokens_in": "many"}}, "work.tokens_in must be a number"),
        (
            {"kind": "train", "model": "ResNet-50", "parameters": None, "unit": "s", "work": {}},
            "samples or steps is missing",
        ),
        ({"kind": "tables", "unit": "s", "work": {}}, "work.rows is missing"),
        ({"kind": "lora", "hardware": "Core i7-12700K", "unit": "s/step"}, "nobody published lora"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(change: dict[str, Any], message: str) -> None:
    record = answer_record({**RECORD, **change}, read_calibration())
    assert message in record["refused"]
    assert "low" not in record
    json.dumps(record, allow_nan=False)


def test_a_refusal_for_want_of_outcomes_has_the_bound_of_physics() -> None:
    record = answer_record(
        {**RECORD, "kind": "lora", "hardware": "Core i7-12700K", "unit": "s/step"}, read_calibration()
    )
    assert record["bound"] > 0


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20) | st.sampled_from(KINDS + list(MODELS.values())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*RECORD, *WORK]), inner, max_size=5),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*RECORD, "else"]), ANYTHING))
def test_no_record_is_answered_with_an_exception(changes: dict[str, Any]) -> None:
    answered_record = answer_record({**RECORD, **changes}, read_calibration())
    assert ("refused" in answered_record) != ("middle" in answered_record)
    json.dumps(answered_record, allow_nan=False)


def test_numbers_below_zero_are_refused() -> None:
    with pytest.raises(UnclearJobError, match=r"work\.batch must be a number of at least 0, not -1"):
        parse_job({**RECORD, "work": {"batch": -1}})


def test_the_cheapest_machine_that_meets_the_wish_is_chosen() -> None:
    words = read_words()
    for example in words["examples"]:
        wish = Wish(example["kind"], float(example["wish"]))
        advice = compare(example_job(example, ""), wish, words["machines"], read_calibration())
        assert advice.best is not None
        costs = {}
        for each in advice.answers:
            if each.situation is not None and wish.is_met(each):
                costs[each.job.hardware] = hourly_cost(each.situation.machine, each.usd_per_hour)
        known = {name: cost for name, cost in costs.items() if cost is not None}
        assert advice.met == bool(known)
        if known:
            assert known[advice.best.job.hardware] == min(known.values())
        if advice.cheaper is not None:
            assert not wish.is_met(advice.cheaper)


def test_a_wish_that_nothing_meets_names_the_nearest() -> None:
    job, machines = make_job("decode"), ["M1 16GB", "RTX 3060 12GB", "RTX 4090"]
    advice = compare(job, Wish("decode", 1e6), machines, read_calibration())
    assert not advice.met
    assert advice.best is not None
    assert advice.best.job.hardware == "RTX 4090"
