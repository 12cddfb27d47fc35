//! The control loop, the journal, recording, replay and the report's numbers.
