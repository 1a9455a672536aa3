// A service worker that keeps every file of the page: it opens without a network from then on.
// With a network, files come from the server, so that a new model is used at once.
const KEPT = "translation";

// Loaded before this worker runs, so that one visit is enough.
const PAGE = ["./"];

self.addEventListener("install", (event) => {
  self.skipWaiting();
  event.waitUntil(caches.open(KEPT).then((kept) => kept.addAll(PAGE)));
});
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

async function answer(request) {
  const kept = await caches.open(KEPT);
  let response;
  try {
    response = await fetch(request);
  } catch (error) {
    const copy = await kept.match(request);
    if (copy) return copy;
    throw error;
  }
  if (response.ok) {
    // A full disk costs the copy, not the answer.
    await kept.put(request, response.clone()).catch((error) => console.warn(request.url, error));
  }
  return response;
}

self.addEventListener("fetch", (event) => {
  if (event.request.method === "GET") event.respondWith(answer(event.request));
});
