// Drawing weights: a canvas whose cells are the darker, the larger a weight is.

// Weights lie between 0 and 1. Their square roots are drawn: most are small, and none should vanish.
export function drawHeat(canvas, weights, { cell, gap = 0 }) {
  const rows = weights.length;
  const columns = weights[0].length;
  const scale = gap ? Math.max(1, Math.round(devicePixelRatio)) : 1;
  canvas.width = columns * cell * scale;
  canvas.height = rows * cell * scale;
  const pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(canvas).color;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      pen.globalAlpha = Math.sqrt(Math.min(1, Math.max(0, weights[row][column])));
      pen.fillRect(
        (column * cell + gap) * scale,
        (row * cell + gap) * scale,
        (cell - 2 * gap) * scale,
        (cell - 2 * gap) * scale,
      );
    }
  }
}

export function mean(heads) {
  return heads[0].map((row, r) =>
    row.map((_, c) => heads.reduce((sum, head) => sum + head[r][c], 0) / heads.length),
  );
}
