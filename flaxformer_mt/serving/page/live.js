// Asking while someone types: not at every key, and only the newest question counts.

// `ask(value, signal)` gives a promise of an answer. `show(answer, value)` is called with answers
// to the newest value only; `wait()` when one is on its way; `fail(error)` if it does not come. A
// refusal that names a time to come back (`retryAfter`) is tried again until the value changes.
export function live({ ask, show, wait, fail, pause = 250 }) {
  let timer = 0;
  let asking = null;

  async function run(value) {
    const mine = (asking = new AbortController());
    wait();
    try {
      const answer = await ask(value, mine.signal);
      if (asking === mine) show(answer, value);
    } catch (error) {
      if (asking !== mine) return;
      fail(error);
      if (error.retryAfter) timer = setTimeout(() => run(value), error.retryAfter * 1000);
    }
  }

  return function change(value, { now = false } = {}) {
    clearTimeout(timer);
    asking?.abort();
    asking = null;
    timer = setTimeout(() => run(value), now ? 0 : pause);
  };
}
