/**
 * @grpc/grpc-js: a client stream for throughput, a bidirectional stream for round trips. The service is defined by hand and its
 * messages are plain bytes, so that no serialization is measured.
 */
import {
  type ClientDuplexStream,
  type ClientWritableStream,
  type ServerDuplexStream,
  type ServerReadableStream,
  type sendUnaryData,
  type MethodDefinition,
  Client,
  Server,
  ServerCredentials,
  credentials,
} from "@grpc/grpc-js";
import type { Link, Next, Peer, Take } from "../peer.ts";

const same = (bytes: Buffer): Buffer => bytes;

function method(path: string, responseStream: boolean): MethodDefinition<Buffer, Buffer> {
  return {
    path,
    requestStream: true,
    responseStream,
    requestSerialize: same,
    requestDeserialize: same,
    responseSerialize: same,
    responseDeserialize: same,
  };
}

const SERVICE = {
  flood: method("/bench.Messages/Flood", false),
  pingPong: method("/bench.Messages/PingPong", true),
};

const OPTIONS = { "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1 };

class GrpcLink implements Link {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  async flood(next: Next): Promise<void> {
    const call: ClientWritableStream<Buffer> = this.#client.makeClientStreamRequest(
      SERVICE.flood.path,
      same,
      same,
      () => {},
    );
    for (let message = next(); message !== null; message = next()) {
      if (!call.write(Buffer.from(message.buffer))) {
        await new Promise<void>((resolve) => call.once("drain", () => resolve()));
      }
    }
  }

  pingPong(next: Next, back: Take): Promise<void> {
    const call: ClientDuplexStream<Buffer, Buffer> = this.#client.makeBidiStreamRequest(
      SERVICE.pingPong.path,
      same,
      same,
    );
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const ask = (): void => {
      const message = next();
      if (message === null) resolve();
      else call.write(Buffer.from(message.buffer));
    };
    call.on("data", (message: Buffer) => {
      back(message);
      ask();
    });
    call.on("error", reject);
    ask();
    return promise;
  }
}

export const peer: Peer = {
  listen(take) {
    const server = new Server(OPTIONS);
    server.addService(SERVICE, {
      flood(call: ServerReadableStream<Buffer, Buffer>, answer: sendUnaryData<Buffer>) {
        call.on("data", take);
        call.on("end", () => answer(null, Buffer.alloc(0)));
      },
      pingPong(call: ServerDuplexStream<Buffer, Buffer>) {
        call.on("data", (message: Buffer) => {
          take(message);
          call.write(message);
        });
        call.on("end", () => call.end());
      },
    });
    return new Promise((resolve, reject) => {
      server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
        if (error) reject(error);
        else resolve(`127.0.0.1:${port}`);
      });
    });
  },

  connect(address) {
    const client = new Client(address, credentials.createInsecure(), OPTIONS);
    return new Promise((resolve, reject) => {
      client.waitForReady(Date.now() + 5_000, (error) => {
        if (error) reject(error);
        else resolve(new GrpcLink(client));
      });
    });
  },
};
