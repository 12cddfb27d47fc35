{ Bodies that attract one another, until it is stopped. }
program nbody;
{$mode objfpc}
uses math;
const n = 12;
var x, y, z, u, v, w, m: array[1..n] of double;
    i, j: longint; dx, dy, dz, d, f: double;
begin
  for i := 1 to n do begin
    x[i] := cos(i); y[i] := sin(i * 2); z[i] := cos(i * 3); u[i] := 0; v[i] := 0; w[i] := 0; m[i] := 1 / i;
  end;
  repeat
    for i := 1 to n do
      for j := i + 1 to n do begin
        dx := x[i] - x[j]; dy := y[i] - y[j]; dz := z[i] - z[j];
        d := dx * dx + dy * dy + dz * dz + 0.01;
        f := 0.001 / (d * sqrt(d));
        u[i] := u[i] - dx * m[j] * f; v[i] := v[i] - dy * m[j] * f; w[i] := w[i] - dz * m[j] * f;
        u[j] := u[j] + dx * m[i] * f; v[j] := v[j] + dy * m[i] * f; w[j] := w[j] + dz * m[i] * f;
      end;
    for i := 1 to n do begin
      x[i] := x[i] + 0.001 * u[i]; y[i] := y[i] + 0.001 * v[i]; z[i] := z[i] + 0.001 * w[i];
    end;
  until x[1] > 1e9;
end.
