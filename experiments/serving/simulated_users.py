"""Closed-loop load on a language model: each user streams an answer over HTTP, then sends the next request at once.

The load is the same as in `vllm bench serve --max-concurrency`. Prompts are random and distinct, and prompt caching is
disabled, so no answer comes from a cache. A logit bias makes the server write the letter `a`: with random weights, a
token may have no text and would not be streamed. The model still computes each token.
"""

from __future__ import annotations

import gc
import http.client
import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from contract.running_time import RunningTime
from experiments.children import read_order
from experiments.serving import connection_limits
from experiments.workload import HarnessError

# LETTER: the letter that the model is forced to write.
# BIAS: logit bias that forces this letter.
# BLANK: a blank, which some vocabularies add to the letter.
LETTER, BIAS, BLANK = "a", 1e3, " "
PATH = "/v1/completions"
END = b"data: [DONE]"
BROKEN = "the server broke off an answer"
# Pause in seconds after a failed answer.
PAUSE_S = 0.1


class AnswerError(RuntimeError):
    """A wrong answer; the message says what the server did."""


@dataclass
class Answer:
    """One answer: request time, stream lines with arrival times, and end time (0 while open).

    count: expected tokens. first: True for the user's first answer. counted: True if the answer counts in the results.
    fault: reason for failure, else ''.
    """

    sent: float
    count: int
    first: bool = False
    counted: bool = True
    lines: list[tuple[float, bytes]] = field(default_factory=list)
    ended: float = 0.0
    fault: str = ""


@dataclass
class LoadResult:
    """Times in seconds for correct answers, and faults.

    first: time to first token. between: inter-token times. whole: time to the end of the answer. user_rates: tokens per
    second in an answer, after its first token. late: the client's own delay between an answer and the next request.
    faults: number of wrong answers by fault. tokens: tokens received after all users had their first answers. span_s:
    seconds from then to the load's end. load_s, cpu_s: duration and CPU time for the load. stood_s: seconds for which
    this process was suspended.
    """

    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    user_rates: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    span_s: float = 0.0
    load_s: float = 0.0
    cpu_s: float = 0.0
    stood_s: float = 0.0


def request_body(prompt: list[int], count: int, letter: int, **more: Any) -> bytes:
    """Build the request body for exactly `count` tokens after a prompt (token ids). letter: token id for LETTER."""
    fields = {
        "prompt": prompt, "max_tokens": count, "ignore_eos": True, "temperature": 0.0, "logit_bias": [[letter, BIAS]],
        "cache_prompt": False, "stream": True, **more,
    }  # fmt: skip
    return json.dumps(fields).encode()


def open_response(
    port: int, body: bytes, timeout_s: float, path: str = PATH
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """Send a request on a new connection; return connection and response with only the header read.

    Raises OSError, http.client.HTTPException, and AnswerError if the server returns an error status.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    connection.request("POST", path, body, {"Content-Type": "application/json", "Connection": "close"})
    response = connection.getresponse()
    if response.status != 200:
        message = response.read(2000).decode(errors="replace")
        connection.close()
        raise AnswerError(f"the server said {response.status}: {message[:200]}")
    return connection, response


def read_answer(answer: Answer, port: int, body: bytes, timeout_s: float) -> None:
    """Send a request and store the answer's lines. They are parsed after the load, so that parsing delays no reads.

    body: see `request_body`. timeout_s: longest time without data. Raises HarnessError if no server listens, or the
    system refuses a resource.
    """
    try:
        connection, response = open_response(port, body, timeout_s)
        with closing(connection):
            for line in response:
                answer.lines.append((time.perf_counter(), line))
    except TimeoutError:
        answer.fault = f"the server was silent for {timeout_s:g} s"
    except (ConnectionResetError, BrokenPipeError, http.client.HTTPException):
        answer.fault = BROKEN
    except AnswerError as wrong:
        answer.fault = str(wrong)
    except OSError as refused:
        raise HarnessError(connection_limits.describe_refusal(refused)) from None


def parse_events(lines: Sequence[tuple[float, bytes]]) -> list[tuple[float, str, Mapping[str, Any]]]:
    """Parse a stream into (time, text, event), without the end event.

    Raises AnswerError for malformed events and for any text other than LETTER.
    """
    events = []
    for seconds, line in lines:
        if not line.startswith(b"data:") or line.strip() == END:
            continue
        try:
            event = json.loads(line.removeprefix(b"data:"))
            text = str(event["choices"][0]["text"])
        except (ValueError, LookupError, TypeError):
            raise AnswerError(f"the server streamed {line[:200].decode(errors='replace').strip()}") from None
        if text.strip(LETTER + BLANK):
            raise AnswerError(f"the server wrote {text[:40]!r} instead of only {LETTER!r}")
        events.append((seconds, text, event))
    return events


def require_right_answer(answer: Answer, prompt: int) -> None:
    """Raise AnswerError unless the answer is complete and the server computed all `prompt` tokens."""
    if answer.fault:
        raise AnswerError(answer.fault)
    events = parse_events(answer.lines)
    if not any(line.strip() == END for _, line in answer.lines) or not events:
        raise AnswerError(BROKEN)
    if (written := sum(text.count(LETTER) for _, text, _ in events)) != answer.count:
        raise AnswerError(f"the server wrote {written} tokens instead of {answer.count}")
    try:
        computed = events[-1][2]["timings"]["prompt_n"]
    except (LookupError, TypeError):
        raise AnswerError(
            "the server does not report how many prompt tokens it computed: its version is too old"
        ) from None
    if computed != prompt:
        raise AnswerError(f"the server computed {computed} of {prompt} prompt tokens")


class Crowd:
    """Concurrent users, one thread each.

    The first answers have a different length for each user, so that users do not stay in step; they do not count in the
    results. A later answer counts if the user requests it within `seconds` from the start; at least one answer per user
    counts. A user who has the last answer that counts is done, but sends further requests until all users are done, to
    keep the load constant. Unfinished answers are discarded.

    order: port, letter (token id), users, prompt_tokens, new_tokens, seconds, timeout_s, seed.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.order = order
        self.answers: list[Answer] = []
        self.late: list[float] = []
        self.trouble: list[HarnessError] = []
        self._left, self._lock, self._over = int(order["users"]), threading.Lock(), threading.Event()

    def run(self) -> LoadResult:
        """Offer the load. Raises HarnessError if the client's system refuses a resource, or no server listens."""
        gc.collect()
        gc.freeze()
        self.begun, cpu_s = time.perf_counter(), time.process_time()
        with RunningTime(connection_limits.TICK_S) as running:
            for number in range(self.order["users"]):
                threading.Thread(target=self._run_user, args=(number,), daemon=True).start()
            self._over.wait()
            over, cpu_s, stood_s = time.perf_counter(), time.process_time() - cpu_s, running.stood_s()
        if self.trouble:
            raise self.trouble[0]
        result = summarise_answers(list(self.answers), self.order["prompt_tokens"], over)
        result.late, result.load_s, result.cpu_s, result.stood_s = self.late, over - self.begun, cpu_s, stood_s
        return result

    def _run_user(self, number: int) -> None:
        try:
            self._ask_repeatedly(number)
        except HarnessError as trouble:
            self.trouble.append(trouble)
            self._over.set()

    def _ask_repeatedly(self, number: int) -> None:
        draw = random.Random(f"{self.order['seed']} {number}")
        count, ended, owed = max(1, self.order["new_tokens"] * (number + 1) // self.order["users"]), 0.0, True
        while not self._over.is_set():
            body = request_body(draw.choices(range(256), k=self.order["prompt_tokens"]), count, self.order["letter"])
            answer = Answer(time.perf_counter(), count, first=not ended, counted=bool(ended) and owed)
            self.answers.append(answer)
            if ended:
                self.late.append(answer.sent - ended)
            read_answer(answer, self.order["port"], body, self.order["timeout_s"])
            count, ended = self.order["new_tokens"], time.perf_counter()
            answer.ended = ended
            if answer.counted and ended >= self.begun + self.order["seconds"]:
                owed = False
                self._finish_user()
            if answer.fault:
                time.sleep(PAUSE_S)

    def _finish_user(self) -> None:
        """Record that a user is done; stop the load when all users are done."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self._over.set()


def summarise_answers(answers: Sequence[Answer], prompt: int, over: float) -> LoadResult:
    """Collect times and faults until `over`, the time at which the load ended. prompt: number of tokens per prompt."""
    begun = max(answer.ended for answer in answers if answer.first)
    result = LoadResult(span_s=over - begun)
    for answer in answers:
        is_complete = answer.counted and 0 < answer.ended <= over
        try:
            if is_complete:
                require_right_answer(answer, prompt)
            times = [
                seconds for seconds, text, _ in parse_events(list(answer.lines)) for _ in range(text.count(LETTER))
            ]
        except AnswerError as fault:
            if is_complete:
                result.faults[str(fault)] = result.faults.get(str(fault), 0) + 1
            continue
        result.tokens += sum(begun < seconds <= over for seconds in times)
        if not is_complete:
            continue
        result.first.append(times[0] - answer.sent)
        result.between += (after - before for before, after in pairwise(times))
        result.whole.append(answer.ended - answer.sent)
        if times[-1] > times[0]:
            result.user_rates.append((len(times) - 1) / (times[-1] - times[0]))
    return result


def main() -> None:
    """Offer the ordered load and reply with its results."""
    order, reply = read_order()
    try:
        reply(asdict(Crowd(order).run()))
    except HarnessError as trouble:
        reply({"harness": f"the load: {trouble}"})


if __name__ == "__main__":
    main()
