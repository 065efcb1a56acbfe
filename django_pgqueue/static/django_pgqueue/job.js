/* The page of a job: buttons that copy JSON values and the address of the page, and an error that the address
   names is open. Without this script, the texts can be selected, and the link can be copied. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
    const words = document.querySelector("[data-pgqueue-words]");
    if (words && navigator.clipboard) {
        const add = (place, text) => {
            const button = document.createElement("button");
            button.type = "button";
            button.className = "pgqueue-copied";
            button.textContent = words.dataset.pgqueueWords;
            button.addEventListener("click", async () => {
                await navigator.clipboard.writeText(text());
                button.textContent = words.dataset.pgqueueDone;
                setTimeout(() => { button.textContent = words.dataset.pgqueueWords; }, 2000);
            });
            place.after(button);
        };
        const addAll = (part) => {
            for (const value of part.querySelectorAll("[data-pgqueue-json]")) {
                add(value, () => value.textContent);
            }
            for (const link of part.querySelectorAll("a[data-pgqueue-copy]")) {
                add(link, () => link.href);
            }
        };
        addAll(document);
        document.addEventListener("pgqueue:shown", (event) => addAll(event.detail));
    }
    const open = () => {
        const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
        if (target instanceof HTMLDetailsElement) {
            target.open = true;
            target.scrollIntoView();
        }
    };
    addEventListener("hashchange", open);
    open();
});
