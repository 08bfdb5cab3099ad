"""What must be known to read the rows of the table: what each side does in the time that is measured."""

from __future__ import annotations

NOTES: dict[str, str] = {
    "steps": """\
Episodes of two searches and an answer with a scripted policy; every answer is rewarded, or the run fails. A
round gives the median of its episodes. A step over its tool is the step less the tool called alone, which is
timed between the episodes; TRL's loop has one batch of all episodes, timed as a whole. Growth is in searches
an episode: 2, 8, 32.

- ours: reads the reply (reasoning, call, JSON), checks the arguments against the schema, runs the tool
  under a time-out of 30 s, cuts and guards its result, records the call, pays the reply, and renders the
  whole next prompt. An inline tool runs on the thread that steps, without a time-out; all else is the same.
- gem: one regular expression; no validation, no time-out in the wrapper, no record; returns the result
  alone.
- skyrl-gym: one regular expression; no validation; JSON around the result; made anew for each episode, in
  the reset.
- OpenEnv: takes an action object instead of a reply, so nothing is read; pydantic checks its fields. The
  step itself is ours to write, here an `if`. With MCP tools: a client and a server of FastMCP in process,
  with validation and a time-out; its calls cross an event loop in another thread.
- aviary: takes a tool request instead of a reply, with arguments by name; validates no types; an event
  loop.
- TRL's loop: takes calls that are parsed already, all episodes in one batch, and ids in place of a
  rendered prompt; no validation, no time-out, and no environment: it is the least that a loop around
  tools can cost.""",
    "waiting": """\
Tools that wait 50 ms, all episodes at once, environments made before. The ideal is the same sleeps under
asyncio with nothing else, in the same round. TRL's loop is measured at the first size only: its time is
the sum of all calls.

- ours: a whole rollout, with token ids of prompts and replies, coroutines as tools; the peers step
  environments alone.
- gem: its vector environment on as many threads as episodes; each turn waits for the slowest.
- skyrl-gym: a thread for each episode, as its generator does it; no turn waits for another.
- aviary: coroutines on one event loop.
- TRL's loop: plain functions run one after the other, as do coroutines of different episodes.""",
    "heavy": """\
Four calls an episode, lognormal times (median 100 ms, sigma 1), 0.2 % of which hang until their time-out
of 2 s. No rollout can be faster than its critical path, the longest sum of tool times of one episode.
Turns in lock-step, as the vector environments of the peers and TRL's trainer make them, take at least the
sum of the longest call of each turn; that number is computed, not measured.""",
    "trajectory": """\
Episodes of 8 turns that add 2,000 tokens each, 400 of them sampled, become masked rows, on one thread. Growth
is in episodes: a sixteenth, a quarter, all.

- ours: compares each prompt with all that came before it, id for id, and makes ids, mask, log-probs and
  advantages of a row. Speed counts tokens of the rows, each of which is there once.
- re-tokenising: the whole conversation is encoded anew at each turn by a small byte-pair tokenizer of the
  `tokenizers` package; no masks are made.
- memory copy: ids, masks, log-probs and advantages of all tokens as NumPy arrays (13 bytes a token), copied.
- Memory is traced while rows of a quarter of the episodes are made; plain arrays are those of the copy.
- The append-only episodes are those of a real rollout with the default representation.""",
    "search": """\
Generated paragraphs of 60 words by Zipf's law, queries of 6 words, the best 3, one thread. Growth is in
paragraphs: a sixteenth, a quarter, all.

- ours: from the text of the query to titles and texts, from a memory-mapped index.
- bm25s alone: scoring and selection of word numbers over the very arrays of our index; no text on either
  side.
- tantivy: from text to titles and texts, over its own index with titles and texts as fields; it skips
  paragraphs that cannot be among the best, which neither of the others does.
- rank_bm25: from words to paragraphs; it holds a dictionary for each paragraph in memory and visits all
  of them at each search, so it is given few, and the table multiplies its time by the paragraphs it
  lacks.""",
    "start": """\
Each in a process of its own, files in the cache of the system. A first environment is the class for
peers; theirs have no tasks to load. Memory is what 1,000 environments after their `reset` add to the
process, apart from imports. OpenEnv's import is that of its environment interface, TRL's that of its
trainer, with torch. Growth is in environments.""",
    "vllm": """\
vLLM's CPU build; three tools of 0 to 500 ms between the four replies of an episode. Every reply has the same
number of tokens that vLLM draws, so that all sides compute the same. The model is SmolLM2-135M where its
package or `--model` gives it, else the quickstart's policy, for which the tools decide. Growth is in
episodes.

- ours: a whole rollout; each episode goes on as soon as its own tool has answered.
- TRL: the source of its tool loop on the same engine, without its rendering and parsing; a turn of all
  episodes, then their tools one after the other.
- vLLM by turns: the recorded prompts of each turn, without tools.
- vLLM alone: all recorded prompts at once, without tools, so that nothing waits for a reply before it.""",
}
