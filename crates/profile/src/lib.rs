//! What perch knows about each processor: events, formulas, units, sharing domains.
