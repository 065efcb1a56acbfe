// Shows the drawing of a workflow anew while something in it may change, and scrolls to the job of the page.
//
// The section has an address (data-pgqueue-source) and a pause in seconds (data-pgqueue-pause), which the answer
// renews: a workflow that takes long to read is read less often. The answer is the page of the workflow. Only its
// elements with data-pgqueue-swap replace those with the same id, so that scroll positions, the focus, and what is
// unfolded stay. Nothing is read while the page is hidden, and nothing more if the answer has no pause or is not the
// page, because the session has ended, for example.
"use strict";
{
    const watch = (part) => {
        let timer = 0;

        const plan = () => {
            clearTimeout(timer);
            const pause = Number(part.dataset.pgqueuePause);
            if (pause > 0 && !document.hidden) {
                timer = setTimeout(refresh, pause * 1000);
            }
        };

        const swap = (fresh) => {
            const focused = document.activeElement && part.contains(document.activeElement)
                ? document.activeElement.id : "";
            for (const old of part.querySelectorAll("[data-pgqueue-swap]")) {
                const replacement = fresh.querySelector(`#${CSS.escape(old.id)}`);
                if (replacement) {
                    old.replaceWith(replacement);
                }
            }
            const again = focused && document.getElementById(focused);
            if (again && again !== document.activeElement) {
                again.focus({ preventScroll: true });
            }
        };

        const read = async () => {
            const answer = await fetch(part.dataset.pgqueueSource, { redirect: "manual" });
            const text = answer.ok ? await answer.text() : "";
            const page = new DOMParser().parseFromString(text, "text/html");
            return page.querySelector(`[data-pgqueue-source="${CSS.escape(part.dataset.pgqueueSource)}"]`);
        };

        const refresh = async () => {
            try {
                const fresh = await read();
                part.dataset.pgqueuePause = fresh ? fresh.dataset.pgqueuePause : "";
                if (fresh) {
                    swap(fresh);
                }
            } catch {
                // The network is down: try again after the same pause.
            }
            plan();
        };

        document.addEventListener("visibilitychange", () => {
            clearTimeout(timer);
            if (!document.hidden && part.dataset.pgqueuePause) {
                refresh();
            }
        });
        plan();
    };

    // In its own box only: the page itself does not move.
    const center = (box, element) => {
        const outer = box.getBoundingClientRect();
        const inner = element.getBoundingClientRect();
        box.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
        box.scrollTop += inner.top + inner.height / 2 - outer.top - outer.height / 2;
    };

    document.querySelectorAll("[data-pgqueue-source]").forEach(watch);
    for (const box of document.querySelectorAll(".pgqueue-drawing")) {
        const here = box.querySelector(".pgqueue-node-here");
        if (here) {
            center(box, here);
        }
    }
}
