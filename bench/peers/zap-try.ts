/** The library through `trySend` and `tryRecv`: a promise only where there is something to wait for. */
export { peerTrying as peer } from "./zap.ts";
