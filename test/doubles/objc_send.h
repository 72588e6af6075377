/* Part of objc.c: objc_msgSend. */

/* Saves what may hold arguments, asks for the method, puts all back as it was and jumps there. */
#if defined(__x86_64__)
__asm__(
    ".text\n.p2align 4\n.globl objc_msgSend\n.type objc_msgSend,@function\nobjc_msgSend:\n"
    "  .cfi_startproc\n"
    "  pushq %rbp\n  .cfi_def_cfa_offset 16\n  .cfi_offset %rbp, -16\n  movq %rsp, %rbp\n  .cfi_def_cfa_register %rbp\n"
    "  subq $192, %rsp\n"
    "  movq %rdi, 0(%rsp)\n  movq %rsi, 8(%rsp)\n  movq %rdx, 16(%rsp)\n  movq %rcx, 24(%rsp)\n"
    "  movq %r8, 32(%rsp)\n  movq %r9, 40(%rsp)\n  movq %rax, 48(%rsp)\n  movq %r10, 56(%rsp)\n"
    "  movaps %xmm0, 64(%rsp)\n  movaps %xmm1, 80(%rsp)\n  movaps %xmm2, 96(%rsp)\n  movaps %xmm3, 112(%rsp)\n"
    "  movaps %xmm4, 128(%rsp)\n  movaps %xmm5, 144(%rsp)\n  movaps %xmm6, 160(%rsp)\n  movaps %xmm7, 176(%rsp)\n"
    "  call double_objc_lookup\n"
    "  movq %rax, %r11\n"
    "  movq 0(%rsp), %rdi\n  movq 8(%rsp), %rsi\n  movq 16(%rsp), %rdx\n  movq 24(%rsp), %rcx\n"
    "  movq 32(%rsp), %r8\n  movq 40(%rsp), %r9\n  movq 48(%rsp), %rax\n  movq 56(%rsp), %r10\n"
    "  movaps 64(%rsp), %xmm0\n  movaps 80(%rsp), %xmm1\n  movaps 96(%rsp), %xmm2\n  movaps 112(%rsp), %xmm3\n"
    "  movaps 128(%rsp), %xmm4\n  movaps 144(%rsp), %xmm5\n  movaps 160(%rsp), %xmm6\n  movaps 176(%rsp), %xmm7\n"
    "  leave\n  .cfi_def_cfa %rsp, 8\n  jmp *%r11\n"
    "  .cfi_endproc\n.size objc_msgSend, .-objc_msgSend\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n.p2align 4\n.globl objc_msgSend\n.type objc_msgSend,%function\nobjc_msgSend:\n"
    "  .cfi_startproc\n"
    "  stp x29, x30, [sp, #-224]!\n  .cfi_def_cfa_offset 224\n  .cfi_offset x29, -224\n  .cfi_offset x30, -216\n"
    "  mov x29, sp\n"
    "  stp x0, x1, [sp, #16]\n  stp x2, x3, [sp, #32]\n  stp x4, x5, [sp, #48]\n  stp x6, x7, [sp, #64]\n"
    "  str x8, [sp, #80]\n"
    "  stp q0, q1, [sp, #96]\n  stp q2, q3, [sp, #128]\n  stp q4, q5, [sp, #160]\n  stp q6, q7, [sp, #192]\n"
    "  bl double_objc_lookup\n"
    "  mov x16, x0\n"
    "  ldp x0, x1, [sp, #16]\n  ldp x2, x3, [sp, #32]\n  ldp x4, x5, [sp, #48]\n  ldp x6, x7, [sp, #64]\n"
    "  ldr x8, [sp, #80]\n"
    "  ldp q0, q1, [sp, #96]\n  ldp q2, q3, [sp, #128]\n  ldp q4, q5, [sp, #160]\n  ldp q6, q7, [sp, #192]\n"
    "  ldp x29, x30, [sp], #224\n  .cfi_def_cfa_offset 0\n  br x16\n"
    "  .cfi_endproc\n.size objc_msgSend, .-objc_msgSend\n");
#else
#error "objc_msgSend is written for x86_64 and aarch64"
#endif
extern DOUBLE_EXPORT void objc_msgSend(void);
