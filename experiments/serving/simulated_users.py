"""Users of a language model: each asks over HTTP, reads the answer as it streams, and asks again at once.

A closed loop of so many users, as `vllm bench serve --max-concurrency` makes it: the server never has more to do than
they ask. Prompts are random and never the same, so that none is answered from a cache; the server is told to use none.
It is also told to write the letter `a` whatever the model finds: a token of random weights may have no text, and would
not be streamed. The model computes each token all the same.
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

# The letter, and the advantage of its token. Vocabularies have it with a blank or without.
LETTER, BIAS, BLANK = "a", 1e3, " "
PATH = "/v1/completions"
# The last event of a stream.
END = b"data: [DONE]"
BROKEN = "the server broke off an answer"
# Seconds for which a user waits after an answer that failed.
PAUSE_S = 0.1


class AnswerError(RuntimeError):
    """An answer that is not what was asked for; the message says what the server did."""


@dataclass
class Answer:
    """One answer: when it was asked for, the lines of its stream with their times, and when it ended (0: not yet).

    count: tokens that it is to have. first: its user's first, which begins the load. counted: it tells of the server.
    fault: why it is no right answer; '' if it may be one.
    """

    asked: float
    count: int
    first: bool = False
    counted: bool = True
    lines: list[tuple[float, bytes]] = field(default_factory=list)
    ended: float = 0.0
    fault: str = ""


@dataclass
class LoadResult:
    """Times of right answers in seconds, and what became of all that count.

    first: from a request to its first token. between: between two tokens of an answer. whole: from a request to the end
    of its answer. user_rates: tokens a second of an answer, after its first. late: from an answer to its user's next
    request, the client's own delay. faults: by fault, how many answers had it. tokens, span_s: all tokens that came
    after all users had their first answers, and that time. load_s, cpu_s: the whole load, and CPU time of this process.
    stood_s: seconds in which it stood still.
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
    """The body of a request for exactly `count` tokens after a prompt (numbers of tokens). letter: number of LETTER."""
    asked = {
        "prompt": prompt, "max_tokens": count, "ignore_eos": True, "temperature": 0.0, "logit_bias": [[letter, BIAS]],
        "cache_prompt": False, "stream": True, **more,
    }  # fmt: skip
    return json.dumps(asked).encode()


def open_response(
    port: int, body: bytes, timeout_s: float, path: str = PATH
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """A connection of its own for a request, and the response, of which only the header is read.

    Raises OSError, http.client.HTTPException, and AnswerError where the server refuses.
    """
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    line.request("POST", path, body, {"Content-Type": "application/json", "Connection": "close"})
    response = line.getresponse()
    if response.status != 200:
        said = response.read(2000).decode(errors="replace")
        line.close()
        raise AnswerError(f"the server said {response.status}: {said[:200]}")
    return line, response


def read_answer(answer: Answer, port: int, body: bytes, timeout_s: float) -> None:
    """Ask for an answer, and read it. Its lines are parsed when the load is over, so that nothing delays reading.

    body: see `request`. timeout_s: for how long the server may be silent. Raises HarnessError where nobody listens, or
    the system refuses.
    """
    try:
        line, response = open_response(port, body, timeout_s)
        with closing(line):
            for one in response:
                answer.lines.append((time.perf_counter(), one))
    except TimeoutError:
        answer.fault = f"the server was silent for {timeout_s:g} s"
    except (ConnectionResetError, BrokenPipeError, http.client.HTTPException):
        answer.fault = BROKEN
    except AnswerError as wrong:
        answer.fault = str(wrong)
    except OSError as refused:
        raise HarnessError(connection_limits.describe_refusal(refused)) from None


def parse_events(lines: Sequence[tuple[float, bytes]]) -> list[tuple[float, str, Mapping[str, Any]]]:
    """The events of a stream, without its end: when each came, its text, and all of it.

    Raises AnswerError for an event that no completion has, and for another text than LETTER.
    """
    found = []
    for at, line in lines:
        if not line.startswith(b"data:") or line.strip() == END:
            continue
        try:
            event = json.loads(line.removeprefix(b"data:"))
            text = str(event["choices"][0]["text"])
        except (ValueError, LookupError, TypeError):
            raise AnswerError(f"the server streamed {line[:200].decode(errors='replace').strip()}") from None
        if text.strip(LETTER + BLANK):
            raise AnswerError(f"the server wrote {text[:40]!r} where it was told to write {LETTER!r} alone")
        found.append((at, text, event))
    return found


def require_right_answer(answer: Answer, prompt: int) -> None:
    """Raise AnswerError unless an answer is whole, and all `prompt` tokens of its prompt were computed."""
    if answer.fault:
        raise AnswerError(answer.fault)
    events = parse_events(answer.lines)
    if not any(line.strip() == END for _, line in answer.lines) or not events:
        raise AnswerError(BROKEN)
    if (written := sum(text.count(LETTER) for _, text, _ in events)) != answer.count:
        raise AnswerError(f"the server wrote {written} tokens in place of {answer.count}")
    try:
        computed = events[-1][2]["timings"]["prompt_n"]
    except (LookupError, TypeError):
        raise AnswerError("the server does not tell how many tokens of a prompt it computed: it is too old") from None
    if computed != prompt:
        raise AnswerError(f"the server computed {computed} of the {prompt} tokens of a prompt")


class Crowd:
    """The users, each a thread.

    A user's first answer is shorter than the others, each user's by another length, so that they do not go in step
    afterwards; it does not count. Answers that are asked for in `seconds` from the start do, one of each user at least.
    Users who have theirs ask on until all have, so that none is answered under less load; their last ones are left.

    asked: port, letter (number of its token), users, prompt_tokens, new_tokens, seconds, timeout_s, seed.
    """

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.asked = asked
        self.answers: list[Answer] = []
        self.late: list[float] = []
        self.trouble: list[HarnessError] = []
        self._left, self._lock, self._over = int(asked["users"]), threading.Lock(), threading.Event()

    def run(self) -> LoadResult:
        """Offer the load. Raises HarnessError where this side's system refuses, or nobody listens."""
        gc.collect()
        gc.freeze()
        self.begun, used = time.perf_counter(), time.process_time()
        with RunningTime(connection_limits.TICK_S) as running:
            for number in range(self.asked["users"]):
                threading.Thread(target=self._run_user, args=(number,), daemon=True).start()
            self._over.wait()
            over, used, stood_s = time.perf_counter(), time.process_time() - used, running.stood_s()
        if self.trouble:
            raise self.trouble[0]
        seen = summarise_answers(list(self.answers), self.asked["prompt_tokens"], over)
        seen.late, seen.load_s, seen.cpu_s, seen.stood_s = self.late, over - self.begun, used, stood_s
        return seen

    def _run_user(self, number: int) -> None:
        try:
            self._ask_repeatedly(number)
        except HarnessError as trouble:
            self.trouble.append(trouble)
            self._over.set()

    def _ask_repeatedly(self, number: int) -> None:
        draw = random.Random(f"{self.asked['seed']} {number}")
        count, ended, owed = max(1, self.asked["new_tokens"] * (number + 1) // self.asked["users"]), 0.0, True
        while not self._over.is_set():
            body = request_body(draw.choices(range(256), k=self.asked["prompt_tokens"]), count, self.asked["letter"])
            answer = Answer(time.perf_counter(), count, first=not ended, counted=bool(ended) and owed)
            self.answers.append(answer)
            if ended:
                self.late.append(answer.asked - ended)
            read_answer(answer, self.asked["port"], body, self.asked["timeout_s"])
            count, ended = self.asked["new_tokens"], time.perf_counter()
            answer.ended = ended
            if answer.counted and ended >= self.begun + self.asked["seconds"]:
                owed = False
                self._finish_user()
            if answer.fault:
                time.sleep(PAUSE_S)

    def _finish_user(self) -> None:
        """One more user has all answers that count."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self._over.set()


def summarise_answers(answers: Sequence[Answer], prompt: int, over: float) -> LoadResult:
    """Times and faults of answers to prompts of so many tokens, by the end of the load."""
    begun = max(answer.ended for answer in answers if answer.first)
    seen = LoadResult(span_s=over - begun)
    for answer in answers:
        whole = answer.counted and 0 < answer.ended <= over
        try:
            if whole:
                require_right_answer(answer, prompt)
            times = [at for at, text, _ in parse_events(list(answer.lines)) for _ in range(text.count(LETTER))]
        except AnswerError as fault:
            if whole:
                seen.faults[str(fault)] = seen.faults.get(str(fault), 0) + 1
            continue
        seen.tokens += sum(begun < at <= over for at in times)
        if not whole:
            continue
        seen.first.append(times[0] - answer.asked)
        seen.between += (after - before for before, after in pairwise(times))
        seen.whole.append(answer.ended - answer.asked)
        if times[-1] > times[0]:
            seen.user_rates.append((len(times) - 1) / (times[-1] - times[0]))
    return seen


def main() -> None:
    """Offer the load that is asked for, and tell what became of it."""
    asked, tell = read_order()
    try:
        tell(asdict(Crowd(asked).run()))
    except HarnessError as trouble:
        tell({"harness": f"the load: {trouble}"})


if __name__ == "__main__":
    main()
