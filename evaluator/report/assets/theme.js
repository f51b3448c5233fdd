"use strict";
// Runs before the page is drawn, so that it never flashes in the colours that the reader did not choose.
try { document.documentElement.style.colorScheme = localStorage.getItem("evaluator-colours") ?? ""; } catch { /* no storage */ }
