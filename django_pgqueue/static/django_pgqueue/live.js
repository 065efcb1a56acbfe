// Shows parts of a page anew while a user looks at it.
//
// A part is an element with an id and two attributes: data-pgqueue-source, the address to read, and
// data-pgqueue-pause, the seconds between two reads. The answer is HTML. The element with the same id in it takes
// the place of the part, with its own attributes: one without a source is not read again. Parts with the same
// source share one request. If they have a data-pgqueue-key, the request names their keys: ?keys=5,7.
//
// Nothing is read while the page is hidden, rows are selected, or a user has pressed the button with
// data-pgqueue-toggle. A part in which a user fills in a form, or has selected text, waits. What the reader has
// unfolded and scrolled, and the focus, stay, if these elements have an id (links are known by their address, and
// Django's box around the rows of a list by its class). If the focused row of a list is gone, the row in its place has
// the focus. A slow answer makes the pause longer, and errors make it longer and longer. A part may contain others,
// which are read more often: when one of them has ended, so that its answer has no source, the outer part is read at
// once. If an answer lacks the part, because the session has ended, for example, the part is not read again, and
// elements with data-pgqueue-ended are shown.
"use strict";
{
    const TICK = 1000; // milliseconds
    const SELDOM = 60000;
    const SHARE = 10; // of the time, a tab may keep the server busy for one part in so many
    const plans = new Map(); // by source: when it is due, how often it failed in a row, whether it is being read
    let isPaused = false;

    const groups = () => {
        const found = new Map();
        for (const part of document.querySelectorAll("[data-pgqueue-source]")) {
            const source = part.dataset.pgqueueSource;
            if (Number(part.dataset.pgqueuePause) > 0 && part.id) {
                found.set(source, [...(found.get(source) ?? []), part]);
            }
        }
        return found;
    };

    const pauseOf = (parts) => 1000 * Math.min(...parts.map((part) => Number(part.dataset.pgqueuePause)));

    const SELECTS = "input.action-select, #action-toggle"; // a row, or all of them
    const TICKED = "[type=checkbox], [type=radio]";
    const chosenFirst = (field) => field.options[[...field.options].findIndex((each) => each.defaultSelected)]
        ?? field.options[0];
    const isChanged = (field) => field.matches(TICKED) ? field.checked !== field.defaultChecked
        : field.value !== (field.defaultValue ?? chosenFirst(field)?.value ?? "");
    const isFilledIn = (part) => [...part.querySelectorAll("input, textarea, select")].some((field) =>
        (field === document.activeElement && !field.matches(SELECTS)) || isChanged(field));
    const isSelected = (part) => !getSelection().isCollapsed && getSelection().containsNode(part, true);

    const ROWS = "#changelist-form .results"; // it scrolls sideways, and has no id

    const nameOf = (element) => {
        if (element.id) {
            return `#${CSS.escape(element.id)}`;
        }
        if (element.matches("details[id] > summary")) {
            return `#${CSS.escape(element.parentElement.id)} > summary`;
        }
        if (element.matches("input.action-select")) {
            return `input.action-select[value="${CSS.escape(element.value)}"]`;
        }
        if (element.matches(ROWS)) {
            return ROWS;
        }
        return element.matches("a[href]") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : "";
    };

    // Returns a function that does to the new part what the reader has done to the old one.
    const remember = (part) => {
        const all = [part, ...part.querySelectorAll(`[id], ${ROWS}`)];
        const unfolded = all.filter((each) => each.localName === "details").map((each) => [nameOf(each), each.open]);
        const scrolled = all.filter((each) => each.scrollLeft || each.scrollTop)
            .map((each) => [nameOf(each), each.scrollLeft, each.scrollTop]);
        const focused = part.contains(document.activeElement) ? nameOf(document.activeElement) : "";
        // Of the keys j and k, the place among the rows, if the row is no longer there.
        const row = part.contains(document.activeElement) && document.activeElement.closest("#result_list tbody tr");
        const place = row ? [...row.parentElement.rows].indexOf(row) : -1;
        const find = (fresh, name) => (
            !name ? null : fresh.matches(name) ? fresh : fresh.querySelector(name));
        return (fresh) => {
            for (const [name, isOpen] of unfolded) {
                find(fresh, name)?.toggleAttribute("open", isOpen);
            }
            for (const [name, left, top] of scrolled) {
                find(fresh, name)?.scrollTo({left, top, behavior: "instant"});
            }
            const links = place < 0 ? [] : [...fresh.querySelectorAll("#result_list tbody tr")]
                .map((each) => each.querySelector("a[href]")).filter(Boolean);
            (find(fresh, focused) ?? links[Math.min(place, links.length - 1)])?.focus({preventScroll: true});
        };
    };

    const show = (part, fresh) => {
        const restore = remember(part);
        const outer = part.parentElement.closest("[data-pgqueue-source]");
        part.replaceWith(fresh);
        if (outer && !fresh.dataset.pgqueueSource) {
            plans.get(outer.dataset.pgqueueSource).due = 0;
        }
        document.dispatchEvent(new CustomEvent("pgqueue:shown", {detail: fresh}));
        restore(fresh); // last: other scripts may have drawn what was scrolled or focused
    };

    const end = (part) => {
        delete part.dataset.pgqueueSource;
        document.querySelectorAll("[data-pgqueue-ended]").forEach((note) => { note.hidden = false; });
    };

    // Returns a document; an empty one if there is nothing to see any more. Errors of the server are thrown.
    const fetched = async (source, parts) => {
        const keys = parts.map((part) => part.dataset.pgqueueKey).filter(Boolean).join(",");
        const address = keys ? `${source}${source.includes("?") ? "&" : "?"}keys=${keys}` : source;
        const answer = await fetch(address, {credentials: "same-origin", redirect: "manual"});
        if (answer.status >= 500 || answer.status === 429) {
            throw new Error(answer.status);
        }
        return new DOMParser().parseFromString(answer.ok ? await answer.text() : "", "text/html");
    };

    const showAll = (answer, parts) => {
        for (const part of parts) {
            const fresh = answer.getElementById(part.id);
            if (!part.isConnected || !mayRead() || isFilledIn(part) || isSelected(part)) {
                continue;
            }
            if (fresh) {
                show(part, document.adoptNode(fresh));
            } else {
                end(part);
            }
        }
    };

    const refresh = async (source, parts) => {
        const plan = plans.get(source);
        const began = performance.now();
        plan.isBusy = true;
        const answer = await fetched(source, parts).catch(() => null);
        plan.failures = answer ? 0 : plan.failures + 1; // the network or the server is down
        const pause = Math.max(pauseOf(parts), SHARE * (performance.now() - began));
        plan.due = performance.now() + Math.min(pause * 2 ** plan.failures, Math.max(pause, SELDOM));
        plan.isBusy = false;
        if (answer) {
            showAll(answer, parts);
        }
    };

    const mayRead = () => !document.hidden && !isPaused && !document.querySelector(".action-select:checked");

    const tick = () => {
        if (!mayRead()) {
            return;
        }
        for (const [source, parts] of groups()) {
            if (!plans.has(source)) {
                plans.set(source, {due: performance.now() + pauseOf(parts), failures: 0, isBusy: false});
            }
            const plan = plans.get(source);
            if (!plan.isBusy && performance.now() >= plan.due) {
                refresh(source, parts);
            }
        }
    };

    const toggle = (button) => {
        isPaused = !isPaused;
        button.textContent = isPaused ? button.dataset.resume : button.dataset.pause;
    };

    const start = () => {
        for (const button of document.querySelectorAll("[data-pgqueue-toggle]")) {
            button.hidden = false; // without this script, it would do nothing
            button.addEventListener("click", () => toggle(button));
        }
        // In its own box only: the page itself does not move.
        for (const here of document.querySelectorAll("[data-pgqueue-center]")) {
            const box = here.closest("[tabindex='0'], nav");
            const [inner, outer] = [here.getBoundingClientRect(), box.getBoundingClientRect()];
            box.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
            box.scrollTop += inner.top + inner.height / 2 - outer.top - outer.height / 2;
        }
        setInterval(tick, TICK);
        document.addEventListener("visibilitychange", tick);
    };

    document.addEventListener("DOMContentLoaded", start); // when other deferred scripts have drawn

    // Django's script for actions knows only the boxes that were there when it was started, so it is started again for
    // the new ones, as soon as a user uses one of them: not before, because it keeps the rows that it knows in memory.
    const BOXES = "#result_list input.action-select";
    let isOutdated = false;

    document.addEventListener("pgqueue:shown", (event) => {
        isOutdated ||= event.detail.matches("#pgqueue-rows");
    });
    // On the way down, so that Django's script hears of this event, too.
    for (const kind of ["click", "change"]) {
        document.addEventListener(kind, (event) => {
            if (isOutdated && event.target.matches?.(`${BOXES}, #action-toggle`)) {
                isOutdated = false;
                window.Actions(document.querySelectorAll(BOXES));
            }
        }, true);
    }
}
