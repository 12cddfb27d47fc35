// perch.hpp: regions of a program's own code for C++11 and later; see perch.h.
//
//     perch::init();
//     {
//         perch::Region region("solve");
//         ...
//     }
//     std::printf("%g faults\n", perch::count("solve", "page-faults").value);
#ifndef PERCH_HPP
#define PERCH_HPP

#include <perch.h>

#include <stdexcept>
#include <string>

namespace perch {

enum class Scope { thread = PERCH_THREAD, process = PERCH_PROCESS };

inline void check(int status) {
    if (status < 0) throw std::runtime_error(std::string("perch: ") + perch_error());
}

/// Counts from now on. Throws if a metric or time means nothing. An event that this machine does not have is not counted,
/// and the report says so.
inline void init(const perch_options &options) { check(perch_init(&options)); }
inline void init() { check(perch_init(nullptr)); }

/// Counts from now on if the environment asks for it; returns whether it does.
inline bool init_if_asked() {
    int begun = perch_init_if_asked(nullptr);
    check(begun);
    return begun == 1;
}

/// A region of the calling thread, from here to the end of the block. The name must live as long.
class Region {
  public:
    explicit Region(const char *name) noexcept : name_(perch_start(name) == PERCH_OK ? name : nullptr) {}
    ~Region() { stop(); }
    Region(const Region &) = delete;
    Region &operator=(const Region &) = delete;
    Region(Region &&other) noexcept : name_(other.name_) { other.name_ = nullptr; }
    Region &operator=(Region &&) = delete;

    /// Stops the region before the end of the block.
    void stop() noexcept {
        if (name_) perch_stop(name_);
        name_ = nullptr;
    }

    /// Ends a sample here.
    void read() noexcept {
        if (name_) perch_read(name_);
    }

  private:
    const char *name_;
};

/// Values of a region. Throw if there is no such region or count.
inline perch_values values(const char *region, Scope scope = Scope::process) {
    perch_values values = {};
    check(perch_get(region, static_cast<int>(scope), &values));
    return values;
}

inline perch_count count(const char *region, const char *event, Scope scope = Scope::process) {
    perch_count count = {};
    check(perch_get_count(region, static_cast<int>(scope), event, &count));
    return count;
}

inline double metric(const char *region, const char *metric, Scope scope = Scope::process) {
    double value = 0;
    check(perch_get_metric(region, static_cast<int>(scope), metric, &value));
    return value;
}

/// All regions of all threads as JSON; empty if nothing is counted.
inline std::string json() {
    char *text = perch_json();
    std::string copy = text ? text : "";
    perch_free(text);
    return copy;
}

} // namespace perch

#endif
