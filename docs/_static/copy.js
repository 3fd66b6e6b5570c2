// A button in each block of code that copies it, without the prompts and the output of an interactive session.
document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return; // a page that is not served securely can't copy
  for (const block of document.querySelectorAll("div.highlight")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const text = block.querySelector("pre").innerText;
      const typed = text.split("\n").filter((line) => /^(>>>|\.\.\.)( |$)/.test(line));
      await navigator.clipboard.writeText(typed.length ? typed.map((line) => line.slice(4)).join("\n") : text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    block.append(button);
  }
});
