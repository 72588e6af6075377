#include "metal_objc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../common/library.h"

/*
 * In a program that draws nothing, MTLCreateSystemDefaultDevice gives nil until CoreGraphics is loaded, as Apple's page on that
 * function says. The framework lies beside Metal's. No failure: where it cannot be opened, the missing device will tell.
 */
static void load_core_graphics(const char *metal) {
  static const char end[] = "/Metal.framework/Metal";
  char path[1024];
  size_t length = strlen(metal);
  if (length < sizeof end || strcmp(metal + length - (sizeof end - 1), end) != 0) return;
  int written = snprintf(path, sizeof path, "%.*s/CoreGraphics.framework/CoreGraphics", (int)(length - (sizeof end - 1)), metal);
  if (written > 0 && (size_t)written < sizeof path) (void)dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

int32_t zap_metal_load(const char *runtime, const char *support, struct zap_objc *objc) {
#define SYMBOL(name) {#name, offsetof(struct zap_objc, name), false}
  static const struct zap_symbol in_objc[] = {SYMBOL(sel_registerName),         SYMBOL(objc_getClass),
                                              SYMBOL(objc_retain),              SYMBOL(objc_release),
                                              SYMBOL(objc_autoreleasePoolPush), SYMBOL(objc_autoreleasePoolPop),
                                              SYMBOL(objc_msgSend)};
  static const struct zap_symbol in_metal[] = {SYMBOL(MTLCreateSystemDefaultDevice)};
#undef SYMBOL
  static const char minimum[] = "that of macOS 13 or newer";
  if (support[0] == 0) return zap_fail(ZAP_E_INVALID, "Metal needs the path of libobjc as well: give it as the second library");
  void *library = NULL;
  zap_calling("opening libobjc");
  int32_t status = zap_library_open(support, &library);
  if (status == ZAP_OK) {
    status = zap_library_fill(library, support, minimum, in_objc, sizeof in_objc / sizeof in_objc[0], objc);
  }
  if (status < 0) return status;
  zap_calling("opening Metal.framework");
  load_core_graphics(runtime);
  status = zap_library_open(runtime, &library);
  if (status == ZAP_OK) {
    status = zap_library_fill(library, runtime, minimum, in_metal, sizeof in_metal / sizeof in_metal[0], objc);
  }
  if (status < 0) return status;
  objc->NSString = objc->objc_getClass("NSString");
  if (objc->NSString == NULL) {
    return zap_fail(ZAP_E_SYMBOL, "%s brought no class NSString: it is not the system's own, or not of the same system", runtime);
  }
#define SELECTOR(member, selector) objc->sel.member = (struct zap_selector){objc->sel_registerName(selector), selector};
  ZAP_METAL_SELECTORS(SELECTOR)
#undef SELECTOR
  return ZAP_OK;
}

const char *zap_metal_reason(const struct zap_objc *objc, id error) {
  id description = error == NULL ? NULL : zap_send(objc, error, objc->sel.description);
  const char *text = description == NULL ? NULL : zap_send_text(objc, description, objc->sel.utf8);
  return text == NULL ? "no reason given" : text;
}
