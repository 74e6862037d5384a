"""Break-even points between two ways to pay for the same work: hire or buy, train or serve."""

from __future__ import annotations

from report.data.dataset import Dataset, MissingSourceError
from report.derivations import Formula, assumed_input, documented_input
from report.derived_estimates import Derivation, DerivedEstimates, derive
from report.quantities.derived import arithmetic_quantity
from report.quantities.prices import hourly_price

ENTRIES = ("electricity-*.usd_per_kwh",)
_ELECTRICITY = (
    "electricity-industrial.usd_per_kwh",
    "electricity-new-england-commercial.usd_per_kwh",
    "electricity-west-north-central-commercial.usd_per_kwh",
)


# Each row is a purchase: its name, price entry and GPU count, the machine to hire instead, and the entry for one GPU's
# power.
BOUGHT = (
    ("H100 PCIe", "h100-pcie.usd", 1.0, "lambda-1x-h100-pcie", "h100-pcie.power_w"),
    ("H200 in a system", "h200.usd_in_system", 1.0, "aws-p5en.48xlarge", "h200.power_w"),
    ("DGX A100", "dgx-a100.usd", 8.0, "aws-p4d.24xlarge", "a100-sxm-40gb.power_w"),
)
HOURS = Formula(
    "T = P / n / (q / g - W * o * e)",
    "h",
    {
        "P": ("price of the purchase", "USD"),
        "n": ("GPUs in it", "1"),
        "q": ("price of the machine by the hour", "USD/h"),
        "g": ("GPUs in the machine", "1"),
        "W": ("rated power of one GPU", "W"),
        "o": ("power of all that it needs, over its own", "1"),
        "e": ("price of electricity", "USD/(kW h)"),
    },
)


@arithmetic_quantity("price.break_even_hours", "h", ("accelerator",), formulas=(HOURS,))
def break_even_hours(data: Dataset) -> DerivedEstimates:
    """Hours of use after which buying a GPU costs as much as hiring it, electricity included.

    The purchase price per GPU is divided by the saving per hour, which is the hourly price to hire a GPU, less the cost
    to power the bought GPU for an hour. Staff, space, spares and resale are left out. Raises MissingSourceError, with
    the unverified purchases, if no purchase is verified.
    """
    works, missing = [], []
    for name, price, gpus, machine, power in BOUGHT:
        try:
            inputs = {
                "P": documented_input(data, price),
                "n": assumed_input(gpus, "1", f"what the price is of: {name}"),
                "q": hourly_price(data, machine),
                "g": documented_input(data, f"{machine}.gpus"),
                "W": documented_input(data, power),
                "o": assumed_input(2.0, "1", "host, network and cooling take as much again as the GPU", 1.0, 3.0),
                "e": documented_input(data, "electricity-virginia-commercial.usd_per_kwh", _ELECTRICITY),
            }
        except MissingSourceError as fault:
            missing.append(f"{price} ({fault.what})")
        else:
            works.append(Derivation({"accelerator": name}, HOURS, inputs, f"{machine}: {inputs['q'].what}"))
    if not works:
        raise MissingSourceError(f"a verified price of purchase: {'; '.join(missing)}")
    return derive(works)


_SERVED = "deepseek-v3"
# Fractions of the documented traffic. They go down to a hundredth, because no source says how few tokens most services
# serve.
SHARES = (1.0, 0.1, 0.01)
SERVE = Formula(
    "T = o * G / (f * m * g)",
    "d",
    {
        "o": ("multiple of the documented run that all training took", "1"),
        "G": ("GPU hours of the training", "h"),
        "f": ("share of the documented traffic", "1"),
        "m": ("nodes that serve it, mean of a day", "1"),
        "g": ("GPUs in a node", "1"),
    },
)


@arithmetic_quantity("serving.break_even_days", "d", ("model", "traffic"), formulas=(SERVE,))
def break_even_days(data: Dataset) -> DerivedEstimates:
    """Days until serving a model has used as many GPU hours as training it, for the one model that documents both.

    The GPU hours to train DeepSeek-V3 are divided by the GPU hours to serve it for a day. Both use the same GPU model,
    so no efficiency needs to be assumed. traffic: tokens read and written per day, as documented, or a tenth or a
    hundredth of that number, as if the GPU count scaled with the traffic. The GPU hours to train count V3's final run
    only. To add earlier attempts and R1, a model that the same service serves, the sensitivity table multiplies these
    hours by a factor.
    """
    names = [f"{_SERVED}.serving_{name}_tokens_per_day" for name in ("input", "output")]
    tokens = sum(data.figure(name) for name in names)
    works = []
    for share in SHARES:
        inputs = {
            "o": assumed_input(1.0, "1", "the documented run alone, without what was tried before it", 1.0, 10.0),
            "G": documented_input(data, f"{_SERVED}.gpu_hours"),
            "f": assumed_input(
                share, "1", "the documented day" if share == 1 else "as if GPUs were let go in proportion"
            ),
            "m": documented_input(data, f"{_SERVED}.serving_nodes", [f"{_SERVED}.serving_nodes_peak"]),
            "g": documented_input(data, f"{_SERVED}.gpus_per_node"),
        }
        detail = "as documented" if share == 1 else f"{share:g} of what is documented"
        works.append(Derivation({"model": "DeepSeek-V3", "traffic": share * tokens}, SERVE, inputs, detail))
    return derive(works)
