// The page that asks before an action on all jobs that match comes before all of them are counted. Then this script
// presses its button "Count them all", and shows the numbers in the place of the first ones, with the fields of the form
// that name them. What a user has filled in stays, and so does the page if there is no answer.
"use strict";
{
    const button = document.getElementById("pgqueue-count");
    const find = (page, part) => page.getElementById(part);

    const show = (answer) => {
        const isOffered = (page) => Boolean(page.querySelector(".pgqueue-confirm input[type=submit]"));
        const parts = isOffered(answer) === isOffered(document) ? ["pgqueue-counted", "pgqueue-shown"] : ["content-main"];
        for (const part of parts) {
            find(document, part).replaceChildren(...find(answer, part).childNodes);
        }
        button.remove();
    };

    const count = async () => {
        const body = new FormData(button.form);
        body.append(button.name, button.value);
        const answer = await fetch(location.href, {method: "POST", body, credentials: "same-origin", redirect: "error"});
        const page = new DOMParser().parseFromString(answer.ok ? await answer.text() : "", "text/html");
        if (find(page, "pgqueue-counted")) {
            show(page);
        }
    };

    count().catch(() => {}); // the button is still there
}
