// The pictures follow the theme that the reader has chosen with the button, not only that of the system.
const follow = () => {
  const { theme } = document.body.dataset;
  const media = { dark: "all", light: "not all" }[theme] ?? "(prefers-color-scheme: dark)";
  document.querySelectorAll("picture source").forEach((source) => { source.media = media; });
};

new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
follow();
