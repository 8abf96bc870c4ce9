// Draws the diagrams of a page with the copy of Mermaid beside this file; nothing is asked from elsewhere.
(() => {
  const here = document.currentScript.src;
  const sources = [...document.querySelectorAll("pre.diagram")];
  if (sources.length === 0) return;

  const drawings = sources.map((source) => {
    const drawing = document.createElement("div");
    drawing.className = "drawing";
    source.after(drawing);
    return { source, drawing, text: source.textContent };
  });

  const colours = () => {
    const style = getComputedStyle(document.body);
    const read = (name) => style.getPropertyValue(`--overt-diagram-${name}`).trim();
    const [ink, line, fill, ground] = ["ink", "line", "fill", "ground"].map(read);
    return {
      background: ground, primaryColor: fill, primaryTextColor: ink, primaryBorderColor: line, lineColor: line,
      textColor: ink, mainBkg: fill, nodeBorder: line, edgeLabelBackground: ground, labelBackgroundColor: ground,
      transitionColor: line, transitionLabelColor: ink, stateLabelColor: ink, stateBkg: fill, noteBkgColor: ground,
      noteTextColor: ink, noteBorderColor: line, specialStateColor: line, actorBkg: fill, actorBorder: line,
      actorTextColor: ink, signalColor: line, signalTextColor: ink, labelBoxBkgColor: fill, labelTextColor: ink,
      clusterBkg: ground, clusterBorder: line, fontSize: "15px",
      fontFamily: style.fontFamily,
    };
  };

  let round = 0;
  const draw = async () => {
    const now = ++round;
    mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme: "base", themeVariables: colours() });
    for (const [number, { source, drawing, text }] of drawings.entries()) {
      const { svg } = await mermaid.render(`diagram-${now}-${number}`, text);
      if (now !== round) return;
      drawing.innerHTML = svg;
      source.hidden = true;
    }
  };

  const script = document.createElement("script");
  script.src = new URL("../vendor/mermaid.js", here).href;
  script.onload = () => {
    draw();
    new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  };
  // Without it the text of the diagram stays, which can be read too.
  document.head.append(script);
})();
