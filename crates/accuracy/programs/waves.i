x = span(0., 1., 4000);
y = sin(x * 20.);
for (k = 1; k <= 100000000; k++) {
  y = 0.5 * y + exp(-x * x) * cos(y + k * 0.001) / (1. + x);
  s = sum(y * y);
}
