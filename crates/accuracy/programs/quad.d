// Integrals by Simpson's rule over closures, until it is stopped.
import std.math;
double simpson(scope double delegate(double) f, double a, double b, int n)
{
    immutable h = (b - a) / n;
    double s = f(a) + f(b);
    foreach (i; 1 .. n) s += f(a + i * h) * (i % 2 ? 4 : 2);
    return s * h / 3;
}
void main()
{
    double t = 0;
    for (long k = 1; t < 1e300; k++)
        t += simpson(x => x * x * x / (1 + k * x) + 0.5 * x, 0, 1, 1000);
}
