// Shows parts of a page anew while somebody looks at it: elements with data-pgqueue-live (an address) and
// data-pgqueue-key. All keys of an address are asked for in one request: ?keys=5,7. The answer is JSON:
// {"shown": {"5": html}, "over": ["7"]}. What is over is not asked for again. Nothing is asked while the page
// is hidden. Errors, such as a session that has ended, make it ask less and less often.
"use strict";
{
    const OFTEN = 2000;  // milliseconds
    const SELDOM = 60000;
    let pause = OFTEN;
    let timer = null;

    const wanted = () => {
        const addresses = new Map();
        for (const element of document.querySelectorAll("[data-pgqueue-live]")) {
            const elements = addresses.get(element.dataset.pgqueueLive) ?? [];
            addresses.set(element.dataset.pgqueueLive, [...elements, element]);
        }
        return addresses;
    };

    const show = (elements, answer) => {
        for (const element of elements) {
            const key = element.dataset.pgqueueKey;
            const html = answer.shown[key];
            if (html !== undefined && html !== element.dataset.pgqueueShown) {
                element.innerHTML = html;
                element.dataset.pgqueueShown = html;
            }
            if (answer.over.includes(key)) {
                delete element.dataset.pgqueueLive;
            }
        }
    };

    const ask = async (address, elements) => {
        const keys = elements.map((element) => element.dataset.pgqueueKey).join(",");
        const response = await fetch(`${address}?keys=${keys}`, {
            credentials: "same-origin", redirect: "error", headers: {Accept: "application/json"},
        });
        if (!response.ok) {
            throw new Error(response.status);
        }
        show(elements, await response.json());
    };

    const refresh = async () => {
        timer = null;
        try {
            await Promise.all([...wanted()].map(([address, elements]) => ask(address, elements)));
            pause = OFTEN;
        } catch {
            pause = Math.min(2 * pause, SELDOM);
        }
        plan();
    };

    const plan = () => {
        if (timer === null && !document.hidden && wanted().size) {
            timer = setTimeout(refresh, pause);
        }
    };

    document.addEventListener("visibilitychange", () => {
        if (document.hidden) {
            clearTimeout(timer);
            timer = null;
        } else if (timer === null && wanted().size) {
            refresh();
        }
    });
    if (document.readyState === "loading") {
        document.addEventListener("DOMContentLoaded", plan);
    } else {
        plan();
    }
}
