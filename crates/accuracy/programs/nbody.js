// Planets around a star, leapfrog integration: floating point in compiled JavaScript.
// usage: node nbody.js SECONDS
"use strict";

const end = Date.now() + Number(process.argv[2]) * 1000;
const bodies = [];
for (let i = 0; i < 6; i++) {
  const distance = 4 * i;
  bodies.push({
    x: distance, y: 0, z: 0.05 * i,
    vx: 0, vy: i === 0 ? 0 : Math.sqrt(39 / distance), vz: 0,
    mass: i === 0 ? 39 : 0.004 * i,
  });
}

function advance(step) {
  for (let i = 0; i < bodies.length; i++) {
    const a = bodies[i];
    for (let j = i + 1; j < bodies.length; j++) {
      const b = bodies[j];
      const dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z;
      const square = dx * dx + dy * dy + dz * dz;
      const pull = step / (square * Math.sqrt(square));
      a.vx -= dx * b.mass * pull;
      a.vy -= dy * b.mass * pull;
      a.vz -= dz * b.mass * pull;
      b.vx += dx * a.mass * pull;
      b.vy += dy * a.mass * pull;
      b.vz += dz * a.mass * pull;
    }
  }
  for (const body of bodies) {
    body.x += step * body.vx;
    body.y += step * body.vy;
    body.z += step * body.vz;
  }
}

while (Date.now() < end) for (let i = 0; i < 20000; i++) advance(1e-4);
if (!Number.isFinite(bodies[0].x)) process.exit(1);
