//! Builds the native libraries of `shim/`. `scripts/build.ts` calls it for each platform and collects the results.
//!
//!   zig build                 the libraries for this host, or for -Dtarget=..., into zig-out/lib
//!   zig build check-cuda      an executable that tries the CUDA part on a real GPU, into zig-out/bin; one for another platform
//!                             (-Dtarget=...) into zig-out/<platform>/bin
//!   zig build doubles         the test doubles of vendors' libraries, into zig-out/doubles
//!   zig build ptx             the CUDA kernels as the library carries them, into zig-out/kernels
//!   zig build test-native     the C tests of test/native, run here
//!
//! -Ddpdk-version, -Ddpdk-include and -Ddpdk-libdir compile the DPDK library against this host's libdpdk, for this host alone:
//! `scripts/build.ts` asks pkg-config for them. Without, it is one that says so.
const std = @import("std");

/// What every source file of ours is held to.
const flags = [_][]const u8{
    "-std=c11",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-Werror",
    "-fvisibility=hidden",
    "-fno-asynchronous-unwind-tables",
};

/// What the sources that include DPDK's headers are held to: those use GNU C, and have functions that still may change.
const dpdk_flags = [_][]const u8{"-std=gnu11"} ++ flags[1..].* ++ [_][]const u8{"-DALLOW_EXPERIMENTAL_API"};

/// For all five libraries.
const plain = [_][]const u8{ "shim/common/fail.c", "shim/common/rows.c" };

/// For a node: a region, rings, and something that is opened and closed on a thread of its own.
const node = plain ++ [_][]const u8{
    "shim/common/arena.c",
    "shim/common/handles.c",
    "shim/common/mapping.c",
    "shim/common/service.c",
    "shim/common/thread.c",
};

/// The unified-memory verbs, over a backend.
const uma = plain ++ [_][]const u8{
    "shim/common/device_thread.c",
    "shim/common/handles.c",
    "shim/common/library.c",
    "shim/common/poller.c",
    "shim/common/readiness_epoll.c",
    "shim/common/readiness_kqueue.c",
    "shim/common/thread.c",
    "shim/common/uma_check.c",
    "shim/common/uma_device.c",
    "shim/common/uma_job.c",
    "shim/common/uma_poller.c",
    "shim/common/uma_region.c",
    "shim/common/uma_verify.c",
    "shim/kernels/check_headers.c",
};

/// Arithmetic, made for speed whatever else is made small.
const fast = [_][]const u8{"shim/kernels/ed25519.c"};
const fast_flags = flags ++ [_][]const u8{"-O3"};

const double = [_][]const u8{ "test/doubles/double.c", "test/doubles/double_memory.c" };

/// Every double is its own file and what they share.
const doubles = [_]struct { source: []const u8, file: []const u8, old: bool = false }{
    .{ .source = "test/doubles/cuda.c", .file = "libcuda.so.1" },
    .{ .source = "test/doubles/hip.c", .file = "libamdhip64.so" },
    .{ .source = "test/doubles/objc.c", .file = "libobjc.A.dylib" },
    .{ .source = "test/doubles/metal.c", .file = "Metal" },
    .{ .source = "test/doubles/ibverbs.c", .file = "libibverbs.so.1" },
    .{ .source = "test/doubles/ibverbs.c", .file = "libibverbs-old.so.1", .old = true },
};

pub fn build(b: *std.Build) void {
    const target = b.resolveTargetQuery(query(b));
    const optimize = b.option(std.builtin.Optimize, "optimize", "Small (the default), fast or debug") orelse .small;
    const ptx = cudaKernels(b);

    for ([_][]const u8{ "cuda", "hip", "metal" }) |vendor| {
        const module = cModule(b, target, optimize, vendor);
        if (std.mem.eql(u8, vendor, "cuda")) {
            module.addIncludePath(ptx);
            module.addCSourceFiles(.{ .files = &.{"shim/kernels/embedded_ptx.c"}, .flags = &flags });
        }
        if (std.mem.eql(u8, vendor, "metal")) {
            module.addIncludePath(metalKernels(b));
            module.addCSourceFiles(.{ .files = &.{"shim/kernels/embedded_metal.c"}, .flags = &flags });
        }
        addUma(module);
        module.addCSourceFiles(.{ .files = sources(b, "shim/uma", vendor), .flags = &flags });
        install(b, b.fmt("zap_uma_{s}", .{vendor}), module);
    }
    install(b, "zap_dpdk", dpdkModule(b, target, optimize));
    const gpudirect = cModule(b, target, optimize, null);
    const linux = target.result.os.tag == .linux;
    gpudirect.addCSourceFiles(.{ .files = if (linux) &(node ++ [_][]const u8{"shim/common/library.c"}) else &plain, .flags = &flags });
    for (sources(b, "shim/gpudirect", "")) |source| {
        if (std.mem.endsWith(u8, source, "/elsewhere.c") == linux) continue;
        gpudirect.addCSourceFiles(.{ .files = &.{source}, .flags = &flags });
    }
    install(b, "zap_gpudirect", gpudirect);

    const show = b.step("ptx", "Build the CUDA kernels as the library carries them");
    for (cuda_kernels) |name| {
        const file = b.fmt("{s}.ptx", .{name});
        show.dependOn(&b.addInstallFileWithDir(ptx.path(b, file), .{ .custom = "kernels" }, file).step);
    }
    checkCuda(b, target, optimize, ptx);
    testDoubles(b);
    testNative(b);
}

/// The target that was asked for. What is built for this host runs on others of its kind too: on any CPU, and with a C library
/// as old as we support.
fn query(b: *std.Build) std.Target.Query {
    var result = b.standardTargetOptionsQueryOnly(.{});
    if (result.cpu_model == .determined_by_arch_os) result.cpu_model = .baseline;
    const resolved = b.resolveTargetQuery(result).result;
    switch (resolved.os.tag) {
        .linux => if (resolved.abi == .gnu and result.glibc_version == null) {
            result.cpu_arch = resolved.cpu.arch;
            result.os_tag = .linux;
            result.abi = .gnu;
            result.glibc_version = .{ .major = 2, .minor = 17, .patch = 0 };
        },
        .macos => if (result.os_version_min == null) {
            result.cpu_arch = resolved.cpu.arch;
            result.os_tag = .macos;
            result.os_version_min = .{ .semver = .{ .major = 13, .minor = 0, .patch = 0 } };
        },
        else => {},
    }
    return result;
}

/// The DPDK library: against libdpdk, where we were told of one, else without.
fn dpdkModule(b: *std.Build, target: std.Build.ResolvedTarget, optimize: std.builtin.Optimize) *std.Build.Module {
    const version = b.option([]const u8, "dpdk-version", "Compile the DPDK library against this host's libdpdk, of this version");
    const include = b.option([]const u8, "dpdk-include", "Folders of its headers, separated by colons") orelse "";
    const libdir = b.option([]const u8, "dpdk-libdir", "Folder of its libraries") orelse "/usr/lib";
    if (version == null) {
        const module = cModule(b, target, optimize, null);
        module.addCSourceFiles(.{ .files = &plain, .flags = &flags });
        module.addCSourceFiles(.{ .files = &.{ "shim/dpdk/dpdk.c", "shim/dpdk/without.c" }, .flags = &flags });
        return module;
    }
    if (!std.mem.eql(u8, platform(target.result), platform(b.graph.host.result)))
        std.debug.panic("libdpdk of this host, {s}, is of no use for {s}", .{ platform(b.graph.host.result), platform(target.result) });
    // For this host alone: its C library, whatever its age, as libdpdk needs the same; and the CPU that DPDK's headers take for granted.
    var here = target.query;
    here.cpu_arch = b.graph.host.result.cpu.arch;
    here.os_tag = b.graph.host.result.os.tag;
    here.abi = b.graph.host.result.abi;
    here.glibc_version = if (b.graph.host.result.isGnuLibC()) b.graph.host.result.os.version_range.linux.glibc else null;
    switch (b.graph.host.result.cpu.arch) {
        .x86_64 => here.cpu_model = .{ .explicit = &std.Target.x86.cpu.nehalem },
        .aarch64 => here.cpu_features_add.addFeature(@backingInt(std.Target.aarch64.Feature.crc)),
        else => {},
    }
    // Every packet passes through this one: it is made for speed.
    const module = cModule(b, b.resolveTargetQuery(here), if (optimize == .small) .fast else optimize, null);
    module.addCMacro("ZAP_DPDK_RELEASE", b.fmt("\"{s}\"", .{version.?}));
    var folders = std.mem.tokenizeScalar(u8, include, ':');
    while (folders.next()) |folder| module.addSystemIncludePath(b.graph.cwdRelativePath(folder));
    // libbsd's headers, of which pkg-config says nothing where compilers look anyhow.
    module.addAfterIncludePath(b.graph.cwdRelativePath("/usr/include"));
    module.addLibraryPath(b.graph.cwdRelativePath(libdir));
    for ([_][]const u8{ "rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal" }) |name|
        module.linkSystemLibrary(name, .{ .use_pkg_config = .no });
    const shared = node ++ [_][]const u8{"shim/common/device_thread.c"};
    module.addCSourceFiles(.{ .files = &shared, .flags = &flags });
    for ([_][]const u8{ "shim/dpdk", "shim/dpdk/flow" }) |folder| for (sources(b, folder, "")) |source| {
        if (std.mem.endsWith(u8, source, "/without.c")) continue;
        module.addCSourceFiles(.{ .files = &.{source}, .flags = &dpdk_flags });
    };
    return module;
}

/// A module of C files alone; `vendor` names its verbs, where it is one of the three for unified memory.
fn cModule(
    b: *std.Build,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    vendor: ?[]const u8,
) *std.Build.Module {
    const module = b.createModule(.{
        .target = target,
        .optimize = optimize,
        .link_libc = true,
        .pic = true,
        .strip = optimize != .debug,
        .unwind_tables = .none,
        .sanitize_c = .off,
        // Costs little, and these libraries read what strangers send.
        .stack_protector = true,
    });
    module.addIncludePath(b.path("shim/include"));
    if (vendor) |name| module.addCMacro("ZAP_UMA_PREFIX", b.fmt("zap_uma_{s}_", .{name}));
    return module;
}

fn addUma(module: *std.Build.Module) void {
    module.addCSourceFiles(.{ .files = &uma, .flags = &flags });
    module.addCSourceFiles(.{ .files = &fast, .flags = &fast_flags });
}

fn install(b: *std.Build, name: []const u8, module: *std.Build.Module) void {
    const library = b.addLibrary(.{ .name = name, .linkage = .dynamic, .root_module = module });
    library.link_gc_sections = true;
    library.link_z_defs = true;
    library.link_function_sections = true;
    library.link_data_sections = true;
    b.installArtifact(library);
}

/// The C files of a folder whose names start with `stem`, so that a backend can be split without touching this file.
fn sources(b: *std.Build, folder: []const u8, stem: []const u8) []const []const u8 {
    return files(b, folder, stem, ".c");
}

fn files(b: *std.Build, folder: []const u8, stem: []const u8, end: []const u8) []const []const u8 {
    const io = b.graph.io;
    b.dependOnDirectoryContents(b.path(folder));
    var found: std.ArrayList([]const u8) = .empty;
    const root = b.root.root_dir.handle;
    var directory = root.openDir(io, b.pathJoin(&.{ b.root.sub_path, folder }), .{ .iterate = true }) catch
        std.debug.panic("{s} cannot be read", .{folder});
    defer directory.close(io);
    var entries = directory.iterate();
    while (entries.next(io) catch std.debug.panic("{s} cannot be read", .{folder})) |entry| {
        if (!std.mem.startsWith(u8, entry.name, stem) or !std.mem.endsWith(u8, entry.name, end)) continue;
        found.append(b.allocator, b.pathJoin(&.{ folder, entry.name })) catch @panic("out of memory");
    }
    // The order of a folder is not the same everywhere; that of a library's objects should be.
    std.mem.sort([]const u8, found.items, {}, struct {
        fn before(_: void, first: []const u8, second: []const u8) bool {
            return std.mem.lessThan(u8, first, second);
        }
    }.before);
    return found.items;
}

const cuda_kernels = [_][]const u8{ "check_headers", "ed25519" };

/// The folder with the PTX of each kernel: for compute capability 7.0, which the driver compiles for whatever is there. Clang's own
/// choice of PTX version is too low for that, hence the feature.
fn cudaKernels(b: *std.Build) std.Build.LazyPath {
    const copies = b.addWriteFiles();
    for (cuda_kernels) |name| {
        const compile = b.addRunFile(.zig_exe);
        compile.addArgs(&.{ "clang", "--target=nvptx64-nvidia-cuda", "-march=sm_70" });
        compile.addArgs(&.{ "-Xclang", "-target-feature", "-Xclang", "+ptx60" });
        compile.addArgs(&.{ "-std=c11", "-ffreestanding", "-Wall", "-Wextra", "-Werror", "-O3", "-S" });
        compile.addFileArg2(b.path(b.fmt("shim/kernels/{s}.cuda.c", .{name})), .{});
        compile.addFileInput(b.path("shim/kernels/check_headers.h"));
        for (files(b, "shim/kernels/ed25519", "", "")) |part| compile.addFileInput(b.path(part));
        compile.addArg("-o");
        const file = b.fmt("{s}.ptx", .{name});
        _ = copies.addCopyFile(compile.addOutputFileArg2(file, .{}), file);
    }
    return copies.getDirectory();
}

/// The folder with the texts of the Metal kernel. A copy: the compiler does not know that it depends on them, but its cache
/// sees that a copy of something else has another path.
fn metalKernels(b: *std.Build) std.Build.LazyPath {
    const copies = b.addWriteFiles();
    for ([_][]const u8{ "metal_prelude.metal", "check_headers.h", "check_headers.metal" }) |name| {
        _ = copies.addCopyFile(b.path(b.pathJoin(&.{ "shim/kernels", name })), name);
    }
    return copies.getDirectory();
}

fn checkCuda(
    b: *std.Build,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    ptx: std.Build.LazyPath,
) void {
    const module = cModule(b, target, optimize, "cuda");
    module.addIncludePath(ptx);
    addUma(module);
    module.addCSourceFiles(.{ .files = sources(b, "shim/uma", "cuda"), .flags = &flags });
    const own: []const []const u8 = &.{ "shim/check_cuda.c", "shim/check_cuda_signatures.c" };
    module.addCSourceFiles(.{ .files = &.{"shim/kernels/embedded_ptx.c"}, .flags = &flags });
    module.addCSourceFiles(.{ .files = own, .flags = &flags });
    const program = b.addExecutable(.{ .name = "check-cuda", .root_module = module });
    const step = b.step("check-cuda", "Build an executable that tries the CUDA part on a real GPU");
    // One that does not run here must not take the place of one that does.
    const here = platform(b.graph.host.result);
    const there = platform(target.result);
    const copy = if (std.mem.eql(u8, here, there))
        b.addInstallArtifact(program, .{})
    else
        b.addInstallArtifact(program, .{ .dest_dir = .{ .override = .{ .custom = b.fmt("{s}/bin", .{there}) } } });
    step.dependOn(&copy.step);
}

/// As the folders of `native/` are called, in `lib/ffi/platform.ts` too.
fn platform(target: std.Target) []const u8 {
    return switch (target.os.tag) {
        .linux => switch (target.cpu.arch) {
            .x86_64 => if (target.abi.isMusl()) "linux-x64-musl" else "linux-x64",
            .aarch64 => if (target.abi.isMusl()) "linux-arm64-musl" else "linux-arm64",
            else => @tagName(target.cpu.arch),
        },
        .macos => if (target.cpu.arch == .aarch64) "darwin-arm64" else "darwin-x64",
        else => @tagName(target.os.tag),
    };
}

fn testDoubles(b: *std.Build) void {
    const step = b.step("doubles", "Build the test doubles of vendors' libraries for this host");
    for (doubles) |each| {
        const module = b.createModule(.{
            .target = b.graph.host,
            // One of them verifies signatures by the thousand.
            .optimize = .fast,
            .link_libc = true,
            .pic = true,
            .sanitize_c = .off,
        });
        module.addCSourceFiles(.{ .files = &double, .flags = &.{ "-std=c11", "-D_GNU_SOURCE", "-fvisibility=hidden" } });
        module.addCSourceFiles(.{ .files = &.{each.source}, .flags = &.{ "-std=c11", "-D_GNU_SOURCE", "-fvisibility=hidden" } });
        if (each.old) module.addCMacro("IBVERBS_DOUBLE_OLD", "1");
        const library = b.addLibrary(.{ .name = std.fs.path.stem(each.source), .linkage = .dynamic, .root_module = module });
        const copy = b.addInstallFileWithDir(library.getEmittedBin(), .{ .custom = "doubles" }, each.file);
        step.dependOn(&copy.step);
    }
}

fn testNative(b: *std.Build) void {
    const step = b.step("test-native", "Build and run the C tests for this host");
    for (sources(b, "test/native", "test_")) |source| {
        const module = cModule(b, b.graph.host, .debug, "double");
        addUma(module);
        module.addCSourceFiles(.{ .files = &.{ source, "test/native/double_backend.c" }, .flags = &flags });
        const program = b.addExecutable(.{ .name = std.fs.path.stem(source), .root_module = module });
        step.dependOn(&b.addRunArtifact(program).step);
    }
}
