//! Builds the native libraries of `shim/`. So far there are none: the default step has nothing to do.
const std = @import("std");

pub fn build(b: *std.Build) void {
    _ = b.getInstallStep();
}
