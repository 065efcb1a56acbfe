// A search that has found nothing yet goes on by itself, page after page, until it finds something, it has read MOST
// pages (a minute, at two seconds for each), or a user touches the page. Its link (data-pgqueue-goes-on) leads to the
// next page. The rows that were read before are added to the number (data-pgqueue-read). The first page is short, and
// is read again at once, from its start on.
// The search field offers the suggestions that stand in its help. Of a long filter, the choice is in sight.
"use strict";
{
    for (const choice of document.querySelectorAll("#changelist-filter li.selected")) {
        choice.parentElement.scrollTop = choice.offsetTop - choice.parentElement.offsetTop;
    }
    if (document.getElementById("pgqueue-suggestions")) {
        document.getElementById("searchbar")?.setAttribute("list", "pgqueue-suggestions");
    }
    const MOST = 30;
    const PAUSE = 200; // milliseconds
    const KEY = "pgqueue-search";
    const FIRST = "first"; // the first page, read again
    const link = document.querySelector("a[data-pgqueue-goes-on]");
    const text = document.querySelector("[data-pgqueue-read]");
    const search = new URL(location.href);
    search.searchParams.delete("p");

    const stored = JSON.parse(sessionStorage.getItem(KEY) ?? "null");
    const before = stored?.search === search.href && new URL(location.href).searchParams.has("p")
        ? stored : {search: search.href, pages: 0, read: 0};
    sessionStorage.removeItem(KEY);
    const read = before.read + Number(text?.dataset.pgqueueRead ?? 0);
    if (text && before.read) {
        text.textContent = read.toLocaleString(document.documentElement.lang || "en");
    }
    if (link && before.pages < MOST) {
        let goes = false;
        const timer = setTimeout(() => {
            if (document.visibilityState === "visible") {
                const isAgain = new URL(link.href).searchParams.get("p") === FIRST;
                sessionStorage.setItem(KEY, JSON.stringify({...before, pages: before.pages + 1, read: isAgain ? 0 : read}));
                goes = true;
                location.replace(link.href);
            }
        }, new URL(location.href).searchParams.has("p") ? PAUSE : 0);
        for (const touch of ["pointerdown", "keydown"]) {
            addEventListener(touch, () => {
                clearTimeout(timer);
                if (goes) {
                    stop(); // the next page would come without what the user has ticked or typed here
                }
            }, {once: true});
        }
    }
}
