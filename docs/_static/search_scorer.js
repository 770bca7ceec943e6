/* What the search puts first: pages that help when something is broken, then guides, and the reference last. */
var Scorer = {
  score: ([page, , , , score, , kind]) => {
    if (kind === "object") return score; // a name of the Python API
    if (/^(incidents\/|troubleshooting)/.test(page)) return score + 6;
    return /^(api\/|options|reports|views|FORMAT)/.test(page) ? score - 40 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
