// A service worker that keeps every file of the page: it opens without a network from then on.
// With a network, files come from the server, so that a new model is used at once.
const KEPT = "translation";

// Loaded before this worker runs, so that one visit is enough.
const PAGE = ["./", "node_modules/@browsermt/bergamot-translator/translator.js"];

self.addEventListener("install", (event) => {
  self.skipWaiting();
  event.waitUntil(caches.open(KEPT).then((kept) => kept.addAll(PAGE)));
});
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

async function answer(request) {
  const kept = await caches.open(KEPT);
  try {
    const response = await fetch(request);
    if (response.ok) await kept.put(request, response.clone());
    return response;
  } catch (error) {
    const response = await kept.match(request);
    if (response) return response;
    throw error;
  }
}

self.addEventListener("fetch", (event) => {
  if (event.request.method === "GET") event.respondWith(answer(event.request));
});
