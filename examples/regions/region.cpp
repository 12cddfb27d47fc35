// Regions of a program's code, counted by perch: blocks as regions, and values as numbers.
//
//     make -C examples regions
//     PERCH_REGION_EVENTS=page-faults,task-clock target/examples/region-cpp
#include <perch.hpp>

#include <cstdio>
#include <numeric>
#include <vector>

static double step(int size) {
    perch::Region region("step");
    std::vector<double> values(static_cast<std::size_t>(size));
    std::iota(values.begin(), values.end(), 1.0);
    perch::Region inner("sum");
    return std::accumulate(values.begin(), values.end(), 0.0);
}

int main() try {
    perch::init();
    double result = 0;
    for (int i = 0; i < 10; i++) result += step(1 << 17);
    if (perch_is_on()) {
        perch_values step = perch::values("step");
        std::printf("step: %llu calls, %.6f s\n", static_cast<unsigned long long>(step.calls), step.wall_s);
        std::printf("step: %g page faults\n", perch::count("step", "page-faults").value);
    }
    std::printf("result %g\n", result);
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
